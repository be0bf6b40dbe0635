UPDATE (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS from_step_id, UNHEX(j.c2) AS token, j.c3 AS to_status, UNHEX(j.c4) AS to_step_id, j.c5 AS reason, j.c6 AS value FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]', c2 char(32) PATH '$[2]', c3 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[3]', c4 char(32) PATH '$[4]', c5 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[5]', c6 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[6]')) AS j) AS b STRAIGHT_JOIN ductwork_branches FORCE INDEX (PRIMARY)
   SET status = b.to_status, step_id = b.to_step_id, halt_reason = b.reason, output = b.value,
       claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = NULL, last_advanced_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
 WHERE ductwork_branches.id = b.id
   AND ductwork_branches.step_id = b.from_step_id
   AND ductwork_branches.status IN ('in_progress', 'advancing', 'waiting')
   AND (ductwork_branches.claim_token <=> b.token)
