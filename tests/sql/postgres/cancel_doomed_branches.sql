SELECT br.id, br.status, br.step_id, br.fan_out_id FROM ductwork_branches br
  JOIN ductwork_fan_outs f  ON f.branch_id = ANY (ARRAY[br.id]) AND f.fired_at IS NULL
 WHERE br.run_id = $1 AND br.status = 'waiting'
   AND EXISTS (SELECT 1 FROM ductwork_branches c 
                WHERE c.fan_out_id = f.id AND c.status = 'cancelled' LIMIT 1 OFFSET 0)
 LIMIT $2
