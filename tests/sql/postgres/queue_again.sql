INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT b.id, $1, (extract(epoch from statement_timestamp()) * 1000000)::bigint FROM unnest($2::uuid[]) AS b(id)
