SELECT b.fan_out_id FROM ductwork_branches b
 WHERE b.run_id = ? AND b.fan_out_id > ?
 ORDER BY b.fan_out_id LIMIT 1
