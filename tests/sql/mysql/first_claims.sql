SELECT e.step_id, e.claimed_at
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b
  JOIN ductwork_executions e ON e.step_id = b.id AND e.attempt = 1
