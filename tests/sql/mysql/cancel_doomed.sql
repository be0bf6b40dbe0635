SELECT f.branch_id AS id FROM ductwork_fan_outs f
 WHERE f.branch_id IN (SELECT id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b) AND f.fired_at IS NULL
   AND EXISTS (SELECT 1 FROM ductwork_branches c FORCE INDEX (ductwork_branches_places)
                WHERE c.fan_out_id = f.id AND c.status = 'cancelled' LIMIT 1 OFFSET 0)
