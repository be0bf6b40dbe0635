SELECT d.id, d.run_id, d.event, d.body, d.attempts,
       (SELECT r.id FROM ductwork_runs r WHERE r.id = d.run_id) AS run
  FROM ductwork_deliveries d
 WHERE d.endpoint = ?1 AND d.due_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) ORDER BY d.due_at, d.id LIMIT ?2 
