INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, source_step_id, status, input, output,
     created_at, completed_at)
SELECT UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(s.id), 17))), ?, UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(s.branch_id), 17))), s.ordinal, s.node, s.step, s.via, s.id,
       s.status, s.input, s.output, s.created_at, s.completed_at
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS c
  JOIN ductwork_steps s ON s.branch_id = c.id
 WHERE s.status = 'completed' AND s.via NOT IN ('on_halt', 'on_complete', 'on_wait')
   AND s.id NOT IN (SELECT b.id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b)
