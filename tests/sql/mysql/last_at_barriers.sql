SELECT execution_id FROM (
    SELECT execution_id,
           CASE WHEN missing = row_number() OVER (PARTITION BY arrives_at ORDER BY step_id)
                THEN 1 ELSE 0 END AS last
      FROM (SELECT b.execution_id, b.step_id, b.arrives_at, f.width - f.arrived AS missing
              FROM (SELECT UNHEX(j.c0) AS execution_id, UNHEX(j.c1) AS step_id, UNHEX(j.c2) AS arrives_at FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]', c2 char(32) PATH '$[2]')) AS j) AS b
              STRAIGHT_JOIN ductwork_fan_outs f FORCE INDEX (PRIMARY) ON f.id = b.arrives_at
             ORDER BY f.id DESC FOR UPDATE) barriers) numbered
 WHERE last = 1
;
