SELECT f.id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_fan_outs f FORCE INDEX (PRIMARY) ON f.id = b.id
  STRAIGHT_JOIN ductwork_branches p FORCE INDEX (PRIMARY) ON p.id = f.branch_id FOR UPDATE SKIP LOCKED;
