SELECT e.id FROM ductwork_branches br
  JOIN ductwork_executions e ON e.step_id = br.step_id AND e.result IS NULL
 WHERE br.id IN (SELECT id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b)
