SELECT s.id, s.branch_id, s.node, s.step, s.via, s.source_step_id, s.status, s.created_at,
       s.completed_at, s.answered_by, br.fan_out_id, br.ordinal AS place,
       e.attempt, e.process_id, e.claimed_at, e.result, e.error_class,
       substr(e.error_message, 1, 400) AS error_message, a.due_at, br.halt_reason
  FROM (SELECT x.id FROM ductwork_branches x 
         WHERE x.run_id = ?1 AND x.halt_reason IS NOT NULL
         ORDER BY x.id LIMIT ?2) halted
  JOIN ductwork_branches br ON br.id = halted.id
  JOIN ductwork_steps s ON s.id = br.step_id
  LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.attempt =
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
  LEFT JOIN ductwork_availabilities a ON a.execution_id = e.id
 ORDER BY br.id
