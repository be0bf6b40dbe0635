SELECT br.step_id FROM (SELECT UNHEX(j.c0) AS branch_id, UNHEX(j.c1) AS step_id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]')) AS j) AS b
  STRAIGHT_JOIN ductwork_branches br FORCE INDEX (PRIMARY) ON br.id = b.branch_id AND br.step_id = b.step_id
 WHERE br.status = 'dampened'
 ORDER BY br.id FOR UPDATE
