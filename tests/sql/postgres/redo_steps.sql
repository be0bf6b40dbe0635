INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT (left($1::uuid::text, 19) || substr(s.id::text, 20))::uuid, $1, (left($1::uuid::text, 19) || substr(s.branch_id::text, 20))::uuid, s.ordinal, s.node, s.step, s.via,
       b.status, s.input, $2
  FROM unnest($3::uuid[], $4::text[]) AS b(id, status)
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[b.id])
