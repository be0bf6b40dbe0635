SELECT br.id, br.run_id, br.fan_out_id FROM ductwork_branches br
 WHERE br.run_id = ANY ($1::uuid[])
   AND CASE WHEN br.fan_out_id IS NULL THEN 0 ELSE 1 END = 1
 LIMIT $2
