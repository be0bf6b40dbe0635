UPDATE (SELECT UNHEX(j.c0) AS id, j.c1 AS to_status, j.c2 AS ready FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]', c2 bigint PATH '$[2]')) AS j) AS b STRAIGHT_JOIN ductwork_branches FORCE INDEX (PRIMARY)
   SET status = b.to_status, output = NULL,
       ready_at = CASE WHEN b.ready = 1 THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) END
 WHERE ductwork_branches.id = b.id
