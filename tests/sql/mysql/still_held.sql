SELECT e.id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b JOIN ductwork_executions e ON e.id = b.id
 WHERE e.process_id = ? AND e.result IS NULL
