SELECT br.id, br.run_id, br.fan_out_id FROM ductwork_branches br
 WHERE br.run_id IN (SELECT c0 FROM ductwork_rows(?1))
   AND CASE WHEN br.fan_out_id IS NULL THEN 0 ELSE 1 END = 1
 LIMIT ?2
