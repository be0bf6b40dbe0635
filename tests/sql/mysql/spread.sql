SELECT f.node, f.via, f.width, f.branch_id, br.ordinal
  FROM ductwork_branches br
  JOIN ductwork_fan_outs f ON f.id = br.fan_out_id
 WHERE br.id = ?
