SELECT br.id, br.step_id AS from_step_id, CASE WHEN br.id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(br.id), 17)) END AS branch_id,
       CASE WHEN br.step_id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(br.step_id), 17)) END AS step_id, s.status, s.node, s.ordinal, s.via,
       substr(s.output, 1, 1) AS begins, CASE WHEN f.id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(f.id), 17)) END AS fan_out_id
  FROM (SELECT c0 AS id FROM ductwork_rows(?2)) AS c
  JOIN ductwork_branches br ON br.id = c.id
  JOIN ductwork_steps s ON s.id = br.step_id
  LEFT JOIN ductwork_fan_outs f ON f.branch_id = br.id AND f.node = s.node
 WHERE coalesce(br.halt_reason, '') <> ''
 ORDER BY br.id
