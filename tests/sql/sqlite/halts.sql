SELECT b.halt_reason, s.node, e.error_message
  FROM ductwork_branches b
  JOIN ductwork_steps s ON s.id = b.step_id
  LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.attempt =
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
 WHERE b.run_id = ?1 AND b.halt_reason IS NOT NULL
 ORDER BY b.id LIMIT 100
