INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT b.id, $1,
       coalesce(CASE WHEN $2 > 0 THEN (extract(epoch from statement_timestamp()) * 1000000)::bigint + $2 END,
                (SELECT CASE WHEN min(a.due_at) < (extract(epoch from statement_timestamp()) * 1000000)::bigint THEN min(a.due_at) - 1 END
                   FROM ductwork_availabilities a WHERE a.pipeline = $1),
                (extract(epoch from statement_timestamp()) * 1000000)::bigint)
  FROM unnest($3::uuid[]) AS b(id)
