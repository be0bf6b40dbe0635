UPDATE ductwork_branches
   SET status = 'in_progress', claim_token = NULL, claimed_for_advancing_at = NULL,
       ready_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint + b.delay,
       last_advanced_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS b(branch_id, token, delay)
 WHERE ductwork_branches.id = ANY (ARRAY[b.branch_id]) AND ductwork_branches.claim_token = b.token
