INSERT INTO ductwork_executions
    (id, step_id, pipeline, attempt, retry_count, crash_count)
SELECT b.id, b.step_id, b.pipeline, b.attempt, b.retry_count, b.crash_count
  FROM (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS step_id, j.c2 AS pipeline, j.c3 AS attempt, j.c4 AS retry_count, j.c5 AS crash_count FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]', c2 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[2]', c3 bigint PATH '$[3]', c4 bigint PATH '$[4]', c5 bigint PATH '$[5]')) AS j) AS b
