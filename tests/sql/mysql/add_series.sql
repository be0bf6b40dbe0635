INSERT INTO ductwork_series (pipeline, grain, at, since, started, completed, halted, retries, waited, lasted)
SELECT b.pipeline, b.grain, b.at, b.since, b.started, b.completed, b.halted, b.retries, b.waited, b.lasted
  FROM (SELECT j.c0 AS pipeline, j.c1 AS grain, j.c2 AS at, j.c3 AS since, j.c4 AS started, j.c5 AS completed, j.c6 AS halted, j.c7 AS retries, j.c8 AS waited, j.c9 AS lasted FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]', c1 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]', c2 bigint PATH '$[2]', c3 bigint PATH '$[3]', c4 bigint PATH '$[4]', c5 bigint PATH '$[5]', c6 bigint PATH '$[6]', c7 bigint PATH '$[7]', c8 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[8]', c9 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[9]')) AS j) AS b WHERE true
ON DUPLICATE KEY UPDATE
       started = ductwork_series.started + VALUES(started),
       completed = ductwork_series.completed + VALUES(completed),
       halted = ductwork_series.halted + VALUES(halted),
       retries = ductwork_series.retries + VALUES(retries),
       waited = VALUES(waited), lasted = VALUES(lasted)
