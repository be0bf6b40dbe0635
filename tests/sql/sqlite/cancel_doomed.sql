SELECT f.branch_id AS id FROM ductwork_fan_outs f
 WHERE f.branch_id IN (SELECT c0 FROM ductwork_rows(?1)) AND f.fired_at IS NULL
   AND EXISTS (SELECT 1 FROM ductwork_branches c 
                WHERE c.fan_out_id = f.id AND c.status = 'cancelled' LIMIT 1 OFFSET 0)
