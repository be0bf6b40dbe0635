INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(s.id), 17))), ?, UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(s.branch_id), 17))), s.ordinal, s.node, s.step, s.via,
       'in_progress', s.input, ?
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS c
  JOIN ductwork_branches br ON br.id = c.id
  JOIN ductwork_steps s ON s.id = br.step_id
 WHERE s.status = 'failed' AND s.via <> 'dampen'
