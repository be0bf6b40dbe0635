SELECT br.id FROM ductwork_branches br
  JOIN ductwork_steps s ON s.id = br.step_id
  JOIN ductwork_runs r ON r.id = br.run_id
 WHERE br.id IN (SELECT c0 FROM ductwork_rows(?1)) 
