INSERT INTO ductwork_advancements
    (id, transition_id, branch_id, process_id, claim_token, crash_count, claimed_at, lease_until)
SELECT b.id, t.id, br.id, $1, b.token, t.crash_count, (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint + $2
  FROM unnest($3::uuid[], $4::uuid[], $5::uuid[]) AS b(id, branch_id, token)
  JOIN ductwork_branches br ON br.id = ANY (ARRAY[b.branch_id]) AND br.claim_token = b.token
  JOIN ductwork_transitions t ON t.from_step_id = ANY (ARRAY[br.step_id]) AND t.completed_at IS NULL
