SELECT s.node, s.branch_id, e.attempt, a.due_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now,
       p.result, p.error_class, p.error_message
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.branch_id = br.id AND s.status = 'in_progress'
  JOIN ductwork_executions e ON e.step_id = s.id AND e.completed_at IS NULL AND e.attempt > 1
  JOIN ductwork_executions p ON p.step_id = e.step_id AND p.attempt = e.attempt - 1
  LEFT JOIN ductwork_availabilities a ON a.execution_id = e.id
 WHERE br.run_id = ?
 ORDER BY p.completed_at DESC, e.id LIMIT ?
