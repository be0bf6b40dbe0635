SELECT e.step_id, e.claimed_at
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
  JOIN ductwork_executions e ON e.step_id = b.id AND e.attempt = 1
