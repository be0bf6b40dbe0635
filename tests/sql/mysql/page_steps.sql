SELECT s.id, s.branch_id, s.node, s.step, s.via, s.source_step_id, s.status, s.created_at,
       s.completed_at, s.answered_by, br.fan_out_id, br.ordinal AS place,
       e.attempt, e.process_id, e.claimed_at, e.result, e.error_class,
       substr(e.error_message, 1, 400) AS error_message, a.due_at
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.branch_id = br.id
  LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.attempt =
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
  LEFT JOIN ductwork_availabilities a ON a.execution_id = e.id
 WHERE br.run_id = ? AND ? IN (s.node, '') AND ? IN (s.status, '')
 ORDER BY CASE WHEN s.status = 'failed' THEN 0 WHEN s.status = 'waiting' THEN 1 WHEN s.status <> 'in_progress' THEN 4
               WHEN e.process_id IS NOT NULL THEN 2 ELSE 3 END, s.created_at, s.id LIMIT ?
