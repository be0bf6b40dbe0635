SELECT b.fan_out_id FROM ductwork_branches b
 WHERE b.run_id = $1 AND b.fan_out_id > $2
 ORDER BY b.fan_out_id LIMIT 1
