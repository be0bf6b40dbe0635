SELECT s.id, s.status
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.branch_id = br.id
 WHERE br.run_id = $1 AND $2 IN (s.node, s.step, '')
 ORDER BY s.created_at, s.id
