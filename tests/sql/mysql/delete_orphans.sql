DELETE ductwork_deliveries FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_deliveries WHERE ductwork_deliveries.id = b.id
