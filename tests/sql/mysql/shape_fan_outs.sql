SELECT DISTINCT f.node, CASE WHEN f.via = 'divide' THEN f.width END AS paths
  FROM ductwork_branches br
  JOIN ductwork_fan_outs f ON f.branch_id = br.id
 WHERE br.run_id = ?
 ORDER BY f.node
