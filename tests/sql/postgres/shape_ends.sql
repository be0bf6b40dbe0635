SELECT DISTINCT s.node, CAST(CASE WHEN f.id IS NULL THEN 0 ELSE 1 END AS bigint) AS split
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[br.step_id])
  LEFT JOIN ductwork_fan_outs f ON f.branch_id = ANY (ARRAY[br.id]) AND f.node = s.node
 WHERE br.run_id = $1 AND br.status = 'completed'
 ORDER BY s.node
