DELETE ductwork_runs FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_runs WHERE ductwork_runs.id = b.id
