DELETE ductwork_tuples FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_tuples WHERE ductwork_tuples.run_id = b.id
