SELECT br.id, br.step_id AS from_step_id, (left($1::uuid::text, 19) || substr(br.id::text, 20))::uuid AS branch_id,
       (left($1::uuid::text, 19) || substr(br.step_id::text, 20))::uuid AS step_id, s.status, s.node, s.ordinal, s.via,
       substr(s.output, 1, 1) AS begins, (left($1::uuid::text, 19) || substr(f.id::text, 20))::uuid AS fan_out_id
  FROM unnest($2::uuid[]) AS c(id)
  JOIN ductwork_branches br ON br.id = ANY (ARRAY[c.id])
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[br.step_id])
  LEFT JOIN ductwork_fan_outs f ON f.branch_id = ANY (ARRAY[br.id]) AND f.node = s.node
 WHERE coalesce(br.halt_reason, '') <> ''
 ORDER BY br.id
