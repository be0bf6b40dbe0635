SELECT br.halt_reason, s.node, s.step, s.id AS step_id, e.attempt, e.error_class, e.error_message
  FROM (SELECT x.id FROM ductwork_branches x 
         WHERE x.run_id = ?1 AND x.halt_reason IS NOT NULL
         ORDER BY x.id LIMIT 100) halted
  JOIN ductwork_branches br ON br.id = halted.id
  JOIN ductwork_steps s ON s.id = br.step_id
  LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.attempt =
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
 ORDER BY br.id
