SELECT br.halt_reason, s.node, s.step, e.error_class, e.error_message
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[br.step_id])
  LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.attempt =
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
 WHERE br.run_id = $1 AND br.halt_reason IS NOT NULL
 ORDER BY br.id LIMIT 100
