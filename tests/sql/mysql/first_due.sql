SELECT b.id AS run_id, a.due_at
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b
  JOIN ductwork_branches br ON br.run_id = b.id AND br.fan_out_id IS NULL
  JOIN ductwork_executions e ON e.step_id = br.step_id AND e.attempt = 1
  JOIN ductwork_availabilities a ON a.execution_id = e.id
 WHERE a.due_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
