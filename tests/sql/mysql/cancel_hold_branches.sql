SELECT id, status, step_id, fan_out_id FROM ductwork_branches
 WHERE id IN (SELECT id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b) AND status IN ('in_progress', 'advancing', 'waiting', 'dampened')
 ORDER BY id FOR UPDATE
