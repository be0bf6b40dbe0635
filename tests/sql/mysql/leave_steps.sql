UPDATE (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_steps FORCE INDEX (PRIMARY) SET status = 'completed'
 WHERE ductwork_steps.id = b.id AND ductwork_steps.status = 'advancing'
