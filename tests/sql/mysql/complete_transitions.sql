UPDATE (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS branch_id, j.c2 AS kind, j.c3 AS steps FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]', c2 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[2]', c3 bigint PATH '$[3]')) AS j) AS b STRAIGHT_JOIN ductwork_transitions FORCE INDEX (PRIMARY) SET via = b.kind, produced = b.steps, completed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
 WHERE ductwork_transitions.branch_id = b.branch_id
   AND ductwork_transitions.id = b.id AND ductwork_transitions.completed_at IS NULL
