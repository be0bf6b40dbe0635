INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT (left($1::uuid::text, 19) || substr(s.id::text, 20))::uuid, $1, (left($1::uuid::text, 19) || substr(s.branch_id::text, 20))::uuid, s.ordinal, s.node, s.step, s.via,
       'in_progress', s.input, $2
  FROM unnest($3::uuid[]) AS c(id)
  JOIN ductwork_branches br ON br.id = ANY (ARRAY[c.id])
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[br.step_id])
 WHERE s.status = 'failed' AND s.via <> 'dampen'
