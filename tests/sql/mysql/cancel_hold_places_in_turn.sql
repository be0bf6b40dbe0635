SELECT q.execution_id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b
  STRAIGHT_JOIN ductwork_availabilities q FORCE INDEX (PRIMARY) ON q.execution_id = b.id
 ORDER BY q.execution_id FOR UPDATE
