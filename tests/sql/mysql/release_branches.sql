UPDATE (SELECT UNHEX(j.c0) AS branch_id, UNHEX(j.c1) AS token, j.c2 AS delay FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]', c2 bigint PATH '$[2]')) AS j) AS b STRAIGHT_JOIN ductwork_branches FORCE INDEX (PRIMARY)
   SET status = 'in_progress', claim_token = NULL, claimed_for_advancing_at = NULL,
       ready_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + b.delay,
       last_advanced_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
 WHERE ductwork_branches.id = b.branch_id AND ductwork_branches.claim_token = b.token
