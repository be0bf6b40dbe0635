INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT b.id, $1, (extract(epoch from statement_timestamp()) * 1000000)::bigint + $2 FROM unnest($3::uuid[]) AS b(id)
