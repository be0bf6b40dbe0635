INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT b.execution_id, b.pipeline,
       coalesce((extract(epoch from statement_timestamp()) * 1000000)::bigint + b.due_in,
                (SELECT CASE WHEN min(a.due_at) < (extract(epoch from statement_timestamp()) * 1000000)::bigint THEN min(a.due_at) - 1 END
                   FROM ductwork_availabilities a WHERE a.pipeline = b.pipeline),
                (extract(epoch from statement_timestamp()) * 1000000)::bigint)
  FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS b(execution_id, pipeline, due_in)
