SELECT DISTINCT s.node,
       CASE WHEN f.id IS NOT NULL THEN 'split' WHEN coalesce(br.output, s.output) = '[]' THEN 'empty'
            ELSE 'whole' END AS left_it
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[br.step_id])
  LEFT JOIN ductwork_fan_outs f ON f.branch_id = ANY (ARRAY[br.id]) AND f.node = s.node
 WHERE br.run_id = $1 AND br.status = 'completed'
 ORDER BY s.node
