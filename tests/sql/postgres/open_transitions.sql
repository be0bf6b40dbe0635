INSERT INTO ductwork_transitions (id, run_id, branch_id, from_step_id, opened_at)
SELECT b.id, br.run_id, br.id, br.step_id, (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS b(id, branch_id, token)
  JOIN ductwork_branches br ON br.id = ANY (ARRAY[b.branch_id]) AND br.claim_token = b.token
 WHERE true
ON CONFLICT (from_step_id) DO NOTHING
