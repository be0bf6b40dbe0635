UPDATE (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_executions FORCE INDEX (PRIMARY)
   SET completed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), result = ?, error_class = ?, error_message = ?
 WHERE ductwork_executions.id = b.id AND process_id = ? AND completed_at IS NULL
