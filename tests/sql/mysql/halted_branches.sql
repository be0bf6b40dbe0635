SELECT br.id, br.step_id AS from_step_id, UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(br.id), 17))) AS branch_id,
       UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(br.step_id), 17))) AS step_id, s.status, s.node, s.ordinal, s.via,
       substr(s.output, 1, 1) AS begins, UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(f.id), 17))) AS fan_out_id
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS c
  JOIN ductwork_branches br ON br.id = c.id
  JOIN ductwork_steps s ON s.id = br.step_id
  LEFT JOIN ductwork_fan_outs f ON f.branch_id = br.id AND f.node = s.node
 WHERE coalesce(br.halt_reason, '') <> ''
 ORDER BY br.id
