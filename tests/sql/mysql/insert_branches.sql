INSERT INTO ductwork_branches
    (id, run_id, pipeline, fan_out_id, ordinal, status, step_id, last_advanced_at)
SELECT b.id, b.run_id, b.pipeline, b.fan_out_id, b.ordinal, 'in_progress', b.step_id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS run_id, j.c2 AS pipeline, UNHEX(j.c3) AS fan_out_id, j.c4 AS ordinal, UNHEX(j.c5) AS step_id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]', c2 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[2]', c3 char(32) PATH '$[3]', c4 bigint PATH '$[4]', c5 char(32) PATH '$[5]')) AS j) AS b
