SELECT e.id, CAST(CASE WHEN e.process_id IS NULL AND e.completed_at IS NULL THEN 1 ELSE 0 END AS SIGNED) AS is_queued
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_executions e FORCE INDEX (PRIMARY) ON e.id = b.id
