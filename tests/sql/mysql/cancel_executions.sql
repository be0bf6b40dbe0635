UPDATE (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_executions FORCE INDEX (PRIMARY) SET completed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), result = 'cancelled'
 WHERE ductwork_executions.id = b.id AND result IS NULL
