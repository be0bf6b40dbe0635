SELECT f.branch_id AS id FROM ductwork_fan_outs f
 WHERE f.branch_id = ANY ($1::uuid[]) AND f.fired_at IS NULL
   AND EXISTS (SELECT 1 FROM ductwork_branches c 
                WHERE c.fan_out_id = f.id AND c.status = 'cancelled' LIMIT 1 OFFSET 0)
