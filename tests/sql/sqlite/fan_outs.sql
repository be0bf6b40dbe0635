SELECT f.id, f.branch_id, f.node, f.via, f.width, f.arrived, f.halted, f.fired_at
  FROM ductwork_branches br
  JOIN ductwork_fan_outs f ON f.branch_id = br.id
 WHERE br.run_id = ?1 ORDER BY f.id LIMIT ?2
