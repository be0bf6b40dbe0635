SELECT d.id, d.run_id, d.event, d.body, d.attempts,
       (SELECT r.id FROM ductwork_runs r WHERE r.id = ANY (ARRAY[d.run_id])) AS run
  FROM ductwork_deliveries d
 WHERE d.endpoint = $1 AND d.due_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint ORDER BY d.due_at, d.id LIMIT $2 FOR UPDATE SKIP LOCKED
