SELECT d.id, d.run_id, d.event, d.body, d.attempts, r.id AS run
  FROM ductwork_deliveries d LEFT JOIN ductwork_runs r ON r.id = ANY (ARRAY[d.run_id])
 WHERE d.endpoint = $1 AND d.due_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint ORDER BY d.due_at, d.id LIMIT $2
