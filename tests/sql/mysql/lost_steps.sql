SELECT e.id, e.step_id, e.pipeline, e.attempt, e.retry_count, e.crash_count,
       s.step, s.branch_id, s.run_id, s.via, r.definition
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b
  JOIN ductwork_executions e ON e.id = b.id
  JOIN ductwork_steps s ON s.id = e.step_id
  JOIN ductwork_runs r ON r.id = s.run_id
 ORDER BY e.id
