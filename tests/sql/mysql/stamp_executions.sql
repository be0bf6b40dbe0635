UPDATE (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS taken STRAIGHT_JOIN ductwork_executions FORCE INDEX (PRIMARY)
   SET process_id = ?, claimed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), lease_until = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?
 WHERE ductwork_executions.id = taken.id
   AND ductwork_executions.process_id IS NULL
   AND ductwork_executions.result IS NULL
