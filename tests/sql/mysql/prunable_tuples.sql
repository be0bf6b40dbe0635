SELECT t.run_id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_tuples t FORCE INDEX (PRIMARY) ON t.run_id = b.id LIMIT ?;
