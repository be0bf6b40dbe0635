SELECT e.id, e.step_id, e.attempt, e.claimed_at, e.completed_at, e.result, e.error_class,
       substr(e.error_message, 1, 1000) AS error_message, e.process_id, coalesce(p.host, d.host) AS host
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b
  JOIN ductwork_executions e ON e.step_id = b.id AND e.claimed_at IS NOT NULL AND e.attempt >
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = b.id) - ?
  LEFT JOIN ductwork_processes p ON p.id = e.process_id
  LEFT JOIN ductwork_departed d ON d.id = e.process_id
 ORDER BY e.step_id, e.attempt
