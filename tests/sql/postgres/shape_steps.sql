SELECT DISTINCT s.node, s.step, s.via, p.node AS from_node,
       CAST(CASE WHEN g.id IS NULL THEN 0 ELSE 1 END AS bigint) AS split, f.node AS fan_out_node,
       CASE WHEN f.via = 'divide' THEN br.ordinal END AS path
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.branch_id = br.id AND s.via <> 'on_halt'
  LEFT JOIN ductwork_steps p ON p.branch_id = ANY (ARRAY[br.id]) AND p.ordinal = s.ordinal - 1
  LEFT JOIN ductwork_fan_outs g ON g.branch_id = ANY (ARRAY[br.id]) AND g.node = p.node
  LEFT JOIN ductwork_fan_outs f ON f.id = ANY (ARRAY[br.fan_out_id]) AND s.ordinal = 0
 WHERE br.run_id = $1
 ORDER BY s.node, s.via, from_node, fan_out_node, path
