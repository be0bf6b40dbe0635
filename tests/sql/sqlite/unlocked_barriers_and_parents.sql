SELECT f.id FROM ductwork_fan_outs f
  JOIN ductwork_branches p ON p.id = f.branch_id
 WHERE f.id IN (SELECT c0 FROM ductwork_rows(?1)) 
