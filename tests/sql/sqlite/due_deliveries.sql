SELECT d.id, d.run_id, d.event, d.body, d.attempts, r.id AS run
  FROM ductwork_deliveries d LEFT JOIN ductwork_runs r ON r.id = d.run_id
 WHERE d.endpoint = ?1 AND d.due_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) ORDER BY d.due_at, d.id LIMIT ?2
