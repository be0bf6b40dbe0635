SELECT id, process_id FROM ductwork_executions
 WHERE id IN (SELECT id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b) AND result IS NULL ORDER BY id FOR UPDATE
