SELECT br.id, br.step_id, f.id AS fan_out_id,
       (SELECT w.branch_id FROM ductwork_fan_outs w WHERE w.id = ?) AS waits
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.id = br.step_id
  LEFT JOIN ductwork_fan_outs f ON f.branch_id = br.id AND f.node = s.node
 WHERE br.fan_out_id = ?
 ORDER BY br.ordinal DESC LIMIT 1
