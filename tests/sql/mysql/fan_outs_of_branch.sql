SELECT f.id, f.node, f.via, f.width, f.arrived, f.halted, f.created_at, f.fired_at, f.branch_id,
 (SELECT c.ordinal + 1 FROM ductwork_branches c WHERE c.fan_out_id = f.id
   ORDER BY c.fan_out_id DESC, c.ordinal DESC LIMIT 1) AS made
  FROM ductwork_fan_outs f WHERE f.branch_id = ?
 ORDER BY f.created_at, f.id LIMIT ?
