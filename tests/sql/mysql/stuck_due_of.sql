SELECT a.pipeline, s.run_id, a.due_at AS since
  FROM (SELECT (SELECT a.execution_id FROM ductwork_availabilities a FORCE INDEX (ductwork_availabilities_due)
                 WHERE a.pipeline = b.pipeline
                 ORDER BY a.pipeline, a.due_at, a.execution_id LIMIT 1) AS execution_id
          FROM (SELECT j.c0 AS pipeline FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]')) AS j) AS b
         WHERE NOT EXISTS (SELECT 1 FROM ductwork_pauses p WHERE p.pipeline = b.pipeline)) h
  JOIN ductwork_availabilities a ON a.execution_id = h.execution_id
  JOIN ductwork_executions e ON e.id = a.execution_id
  JOIN ductwork_steps s ON s.id = e.step_id
 WHERE a.due_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
 ORDER BY a.due_at LIMIT 10000
