SELECT q.due_at - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS wait FROM ductwork_availabilities q
 WHERE q.pipeline = ?
   AND q.execution_id NOT IN (SELECT x.id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS x)
       AND (SELECT r.definition FROM ductwork_executions e
              JOIN ductwork_steps s ON s.id = e.step_id
              JOIN ductwork_runs r ON r.id = s.run_id
             WHERE e.id = q.execution_id) NOT IN (SELECT a.digest FROM (SELECT j.c0 AS digest FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]')) AS j) AS a)
 ORDER BY q.due_at, q.execution_id LIMIT 1
