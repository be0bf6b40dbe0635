SELECT d.id, d.run_id, d.event, d.body, d.attempts FROM ductwork_deliveries d
 WHERE d.endpoint = $1 AND d.due_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint ORDER BY d.due_at, d.id LIMIT $2
