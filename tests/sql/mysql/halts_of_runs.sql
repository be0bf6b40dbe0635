SELECT halted.run_id, halted.halt_reason, s.node, s.step, e.error_class, e.error_message
  FROM (SELECT x.id, x.run_id, x.step_id, x.halt_reason,
               row_number() OVER (PARTITION BY x.run_id ORDER BY x.id) AS place
          FROM ductwork_branches x
         WHERE x.run_id IN (SELECT id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b) AND x.halt_reason IS NOT NULL) halted
  JOIN ductwork_steps s ON s.id = halted.step_id
  LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.attempt =
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
 WHERE halted.place <= 100
 ORDER BY halted.id
