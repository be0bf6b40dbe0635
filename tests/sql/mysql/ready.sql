SELECT id FROM ductwork_branches
 WHERE ready_at IS NOT NULL AND ready_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
   AND (? = 1 OR pipeline IN (SELECT b.name FROM (SELECT j.c0 AS name FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]')) AS j) AS b))
 ORDER BY ready_at, id LIMIT ? FOR UPDATE SKIP LOCKED
