SELECT e.id FROM ductwork_executions e
  JOIN ductwork_steps s ON s.id = e.step_id
  JOIN ductwork_branches br ON br.id = s.branch_id
 WHERE e.id IN (SELECT c0 FROM ductwork_rows(?1)) 
