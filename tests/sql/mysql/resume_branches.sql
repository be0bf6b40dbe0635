UPDATE (SELECT UNHEX(j.c0) AS branch_id, UNHEX(j.c1) AS step_id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]')) AS j) AS b STRAIGHT_JOIN ductwork_branches FORCE INDEX (PRIMARY) SET status = 'in_progress', ready_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
 WHERE ductwork_branches.id = b.branch_id AND ductwork_branches.step_id = b.step_id
   AND ductwork_branches.status = 'dampened'
