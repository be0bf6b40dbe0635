SELECT DISTINCT s.node,
       CASE WHEN f.id IS NOT NULL THEN 'split' WHEN coalesce(br.output, s.output) = '[]' THEN 'empty'
            ELSE 'whole' END AS left_it
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.id = br.step_id
  LEFT JOIN ductwork_fan_outs f ON f.branch_id = br.id AND f.node = s.node
 WHERE br.run_id = ? AND br.status = 'completed'
 ORDER BY s.node
