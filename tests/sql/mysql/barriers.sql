SELECT f.node, f.width, f.arrived
  FROM ductwork_branches b
  JOIN ductwork_fan_outs f ON f.branch_id = b.id AND f.fired_at IS NULL
 WHERE b.run_id = ? AND b.status = 'waiting'
 ORDER BY f.width - f.arrived DESC LIMIT 10
