INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT (left($1::uuid::text, 19) || substr(s.id::text, 20))::uuid, $1, (left($1::uuid::text, 19) || substr(s.branch_id::text, 20))::uuid, s.ordinal, s.node, s.step, s.via,
       b.status, s.input, (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($2::uuid[], $3::text[]) AS b(id, status)
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[b.id])
