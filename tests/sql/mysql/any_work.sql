SELECT (SELECT r.id FROM ductwork_runs r
         WHERE r.status <> 'completed' AND r.status = 'in_progress'
           AND (? = 1 OR r.pipeline IN (SELECT b.name FROM (SELECT j.c0 AS name FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]')) AS j) AS b)) LIMIT 1) AS run_id
 WHERE EXISTS (
    SELECT 1 FROM ductwork_runs r
     WHERE r.status <> 'completed' AND r.status = 'in_progress'
       AND (? = 1 OR r.pipeline IN (SELECT b.name FROM (SELECT j.c0 AS name FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]')) AS j) AS b)))
OR EXISTS (
    SELECT 1 FROM ductwork_availabilities a
     WHERE a.pipeline >= '' AND (? = 1 OR a.pipeline IN (SELECT b.name FROM (SELECT j.c0 AS name FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]')) AS j) AS b)))
OR EXISTS (
    SELECT 1 FROM ductwork_executions e
     WHERE e.completed_at IS NULL AND e.process_id IS NOT NULL AND e.holder IS NOT NULL
       AND (? = 1 OR e.pipeline IN (SELECT b.name FROM (SELECT j.c0 AS name FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]')) AS j) AS b)))
