INSERT INTO ductwork_deadlines (branch_id, answer_by, unanswered)
SELECT b.id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + b.timeout, b.unanswered
  FROM (SELECT UNHEX(j.c0) AS id, j.c1 AS timeout, j.c2 AS unanswered FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 bigint PATH '$[1]', c2 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[2]')) AS j) AS b WHERE true
ON DUPLICATE KEY UPDATE answer_by = VALUES(answer_by), unanswered = VALUES(unanswered)
