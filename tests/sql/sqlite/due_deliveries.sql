SELECT d.id, d.run_id, d.event, d.body, d.attempts FROM ductwork_deliveries d
 WHERE d.endpoint = ?1 AND d.due_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) ORDER BY d.due_at, d.id LIMIT ?2
