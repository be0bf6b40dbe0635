UPDATE (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_executions FORCE INDEX (PRIMARY)
   SET process_id = NULL, claimed_at = NULL, lease_until = NULL
 WHERE ductwork_executions.id = b.id
   AND ductwork_executions.process_id = ?
   AND ductwork_executions.result IS NULL
