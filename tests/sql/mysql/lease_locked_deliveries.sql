UPDATE (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_deliveries FORCE INDEX (PRIMARY) SET due_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?
 WHERE ductwork_deliveries.id = b.id
