INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
SELECT b.id, b.run_id, b.branch_id, b.ordinal, b.node, b.step, b.via, b.transition_id, b.status,
       (SELECT '[' || coalesce(string_agg(coalesce(c.output, s.output), ',' ORDER BY c.ordinal), '') || ']'
          FROM ductwork_branches c 
          JOIN ductwork_steps s ON s.id = ANY (ARRAY[c.step_id])
         WHERE c.fan_out_id = b.from_id), (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::uuid[], $9::text[], $10::uuid[]) AS b(id, run_id, branch_id, ordinal, node, step, via, transition_id, status, from_id)
