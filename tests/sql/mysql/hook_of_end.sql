SELECT s.via, s.status, e.attempt, e.process_id, a.due_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - p.last_heartbeat_at AS silent,
       (SELECT x.error_message FROM ductwork_executions x
         WHERE x.step_id = s.id AND x.completed_at IS NOT NULL
         ORDER BY x.attempt DESC LIMIT 1) AS error_message
  FROM ductwork_branches b
  JOIN ductwork_steps s ON s.branch_id = b.id
  LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.attempt =
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
  LEFT JOIN ductwork_availabilities a ON a.execution_id = e.id
  LEFT JOIN ductwork_processes p ON p.id = e.process_id
 WHERE b.run_id = ? AND b.fan_out_id IS NULL AND s.via IN ('on_halt', 'on_complete')
   AND s.status <> 'completed'
