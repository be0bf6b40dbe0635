SELECT DISTINCT s.node, s.step, s.via, p.node AS from_node,
       CASE WHEN g.id IS NOT NULL THEN 'split' WHEN s.input = '[]' THEN 'empty' ELSE 'whole' END AS left_it,
       f.node AS fan_out_node,
       CASE WHEN f.via = 'divide' THEN br.ordinal END AS path
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.branch_id = br.id AND s.via NOT IN ('on_halt', 'on_complete', 'on_wait')
  LEFT JOIN ductwork_steps p ON p.branch_id = br.id AND p.ordinal = s.ordinal - 1
  LEFT JOIN ductwork_fan_outs g ON g.branch_id = br.id AND g.node = p.node
  LEFT JOIN ductwork_fan_outs f ON f.id = br.fan_out_id AND s.ordinal = 0
 WHERE br.run_id = ?
 ORDER BY s.node, s.via, from_node, fan_out_node, path
