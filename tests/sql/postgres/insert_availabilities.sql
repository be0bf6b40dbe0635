INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT b.execution_id, b.pipeline, (extract(epoch from statement_timestamp()) * 1000000)::bigint + b.delay
  FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS b(execution_id, pipeline, delay)
