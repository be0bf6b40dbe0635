SELECT d.id, d.run_id, d.event, d.body, d.attempts, r.id AS run
  FROM ductwork_deliveries d LEFT JOIN ductwork_runs r ON r.id = d.run_id
 WHERE d.endpoint = ? AND d.due_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) ORDER BY d.due_at, d.id LIMIT ?
