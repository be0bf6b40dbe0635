SELECT e.id FROM ductwork_branches br
  JOIN ductwork_executions e ON e.step_id = br.step_id AND e.result IS NULL
 WHERE br.id IN (SELECT c0 FROM ductwork_rows(?1))
