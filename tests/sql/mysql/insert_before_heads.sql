INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT b.execution_id, b.pipeline,
       coalesce(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + b.due_in,
                (SELECT CASE WHEN a.due_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) THEN a.due_at - 1 END
                   FROM ductwork_availabilities a FORCE INDEX (ductwork_availabilities_due)
                  WHERE a.pipeline = b.pipeline ORDER BY a.pipeline, a.due_at LIMIT 1),
                TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
  FROM (SELECT UNHEX(j.c0) AS execution_id, j.c1 AS pipeline, j.c2 AS due_in FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]', c2 bigint PATH '$[2]')) AS j) AS b
