SELECT execution_id FROM ductwork_availabilities
 WHERE execution_id IN (SELECT id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b) ORDER BY execution_id FOR UPDATE
