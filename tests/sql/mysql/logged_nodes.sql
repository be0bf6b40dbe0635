SELECT s.node, min(s.created_at) AS first
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.branch_id = br.id
 WHERE br.run_id = ? GROUP BY s.node ORDER BY min(s.created_at), s.node
