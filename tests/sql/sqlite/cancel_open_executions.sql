SELECT e.id FROM ductwork_branches br
  JOIN ductwork_executions e ON e.step_id = br.step_id AND e.result IS NULL
 WHERE br.run_id = ?1 ORDER BY e.id
