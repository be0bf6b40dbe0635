SELECT e.step_id, e.result, e.error_class, e.retry_count
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b
  JOIN ductwork_executions e ON e.step_id = b.id
       AND e.attempt = (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = b.id)
