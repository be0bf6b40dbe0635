INSERT INTO ductwork_deliveries (id, endpoint, run_id, event, pipeline, body, state, attempts, created_at, due_at)
SELECT b.id, b.endpoint, b.run_id, b.event, b.pipeline, b.body, 'waiting', 0, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM (SELECT UNHEX(j.c0) AS id, j.c1 AS endpoint, UNHEX(j.c2) AS run_id, j.c3 AS event, j.c4 AS pipeline, j.c5 AS body FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]', c2 char(32) PATH '$[2]', c3 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[3]', c4 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[4]', c5 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[5]')) AS j) AS b
  STRAIGHT_JOIN ductwork_runs r FORCE INDEX (PRIMARY) ON r.id = b.run_id
 WHERE r.pruning_at IS NULL FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE run_id = ductwork_deliveries.run_id
