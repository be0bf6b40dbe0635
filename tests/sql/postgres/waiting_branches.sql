SELECT br.id, br.run_id, br.pipeline, br.fan_out_id, br.ordinal, br.step_id,
       s.ordinal AS step_ordinal, s.node, r.definition
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[br.step_id])
  JOIN ductwork_runs r ON r.id = ANY (ARRAY[br.run_id])
 WHERE br.id IN (SELECT b.id FROM unnest($1::uuid[]) AS b(id)) AND br.status = 'waiting'
