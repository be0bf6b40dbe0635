SELECT s.id, h.via, (SELECT e.error_message FROM ductwork_executions e
                              WHERE e.step_id = h.id ORDER BY e.attempt DESC LIMIT 1) AS error_message
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS x
  JOIN ductwork_steps s ON s.id = x.id
  JOIN ductwork_steps h ON h.branch_id = s.branch_id AND h.ordinal = -s.ordinal
 WHERE h.via = 'on_wait' AND h.status = 'failed'
 ORDER BY s.created_at, s.id
