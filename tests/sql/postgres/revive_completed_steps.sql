INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, source_step_id, status, input, output,
     created_at, completed_at)
SELECT (left($1::uuid::text, 19) || substr(s.id::text, 20))::uuid, $1, (left($1::uuid::text, 19) || substr(s.branch_id::text, 20))::uuid, s.ordinal, s.node, s.step, s.via, s.id,
       s.status, s.input, s.output, s.created_at, s.completed_at
  FROM unnest($2::uuid[]) AS c(id)
  JOIN ductwork_steps s ON s.branch_id = ANY (ARRAY[c.id])
 WHERE s.status = 'completed' AND s.via NOT IN ('on_halt', 'on_complete', 'on_wait')
   AND s.id NOT IN (SELECT b.id FROM unnest($3::uuid[]) AS b(id))
