INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
SELECT b.id, b.run_id, b.branch_id, b.ordinal, b.node, b.step, b.via, b.transition_id, b.status,
       b.about || CASE b.via WHEN 'on_wait' THEN s.input ELSE coalesce(br.output, s.output) END || '}', (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::uuid[], $9::text[], $10::text[]) AS b(id, run_id, branch_id, ordinal, node, step, via, transition_id, status, about)
  JOIN ductwork_branches br ON br.id = ANY (ARRAY[b.branch_id])
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[br.step_id])
