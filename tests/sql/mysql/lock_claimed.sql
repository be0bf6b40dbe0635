SELECT e.id FROM ductwork_executions e
 WHERE e.process_id = ? AND e.id IN (SELECT id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b) AND e.result IS NULL
 ORDER BY e.id FOR UPDATE
