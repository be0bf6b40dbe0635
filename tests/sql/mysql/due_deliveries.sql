SELECT d.id, d.run_id, d.event, d.body, d.attempts,
       (SELECT r.id FROM ductwork_runs r WHERE r.id = d.run_id) AS run
  FROM ductwork_deliveries d
 WHERE d.endpoint = ? AND d.due_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) ORDER BY d.due_at, d.id LIMIT ? FOR UPDATE SKIP LOCKED
