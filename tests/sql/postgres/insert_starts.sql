INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT b.id, b.run_id, b.branch_id, 0, $1, $2, 'start', 'in_progress', r.input, (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($3::uuid[], $4::uuid[], $5::uuid[]) AS b(id, run_id, branch_id)
  JOIN ductwork_runs r ON r.id = ANY (ARRAY[b.run_id])
