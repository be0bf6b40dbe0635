SELECT br.step_id FROM (SELECT c0 AS branch_id, c1 AS step_id FROM ductwork_rows(?1)) AS b
  JOIN ductwork_branches br ON br.id = b.branch_id AND br.step_id = b.step_id
 WHERE br.status = 'dampened'
 ORDER BY br.id 
