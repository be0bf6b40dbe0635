UPDATE (SELECT UNHEX(j.c0) AS id, j.c1 AS made, j.c2 AS pause, j.c3 AS outcome, j.c4 AS code, j.c5 AS reason FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 bigint PATH '$[1]', c2 bigint PATH '$[2]', c3 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[3]', c4 bigint PATH '$[4]', c5 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[5]')) AS j) AS b STRAIGHT_JOIN ductwork_deliveries FORCE INDEX (PRIMARY)
   SET attempts = b.made + 1, due_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + b.pause, state = b.outcome, tried_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
       status = b.code, error = b.reason
 WHERE ductwork_deliveries.id = b.id
