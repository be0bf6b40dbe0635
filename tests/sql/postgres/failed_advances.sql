SELECT br.id, br.pipeline, t.id AS transition_id, t.retry_count
  FROM unnest($1::uuid[], $2::uuid[]) AS b(branch_id, token)
  JOIN ductwork_branches br ON br.id = ANY (ARRAY[b.branch_id]) AND br.claim_token = b.token
  JOIN ductwork_transitions t ON t.from_step_id = ANY (ARRAY[br.step_id])
