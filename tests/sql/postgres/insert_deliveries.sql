INSERT INTO ductwork_deliveries (id, endpoint, run_id, event, pipeline, body, state, attempts, created_at, due_at)
SELECT b.id, b.endpoint, b.run_id, b.event, b.pipeline, b.body, 'waiting', 0, (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[]) AS b(id, endpoint, run_id, event, pipeline, body)
  JOIN ductwork_runs r ON r.id = ANY (ARRAY[b.run_id])
 WHERE r.pruning_at IS NULL FOR KEY SHARE SKIP LOCKED
ON CONFLICT (run_id, endpoint, event) DO NOTHING
