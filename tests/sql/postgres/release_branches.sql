UPDATE ductwork_branches
   SET status = 'in_progress', claim_token = NULL, claimed_for_advancing_at = NULL,
       ready_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint + $1
  FROM unnest($2::uuid[], $3::uuid[]) AS b(branch_id, token)
 WHERE ductwork_branches.id = ANY (ARRAY[b.branch_id]) AND ductwork_branches.claim_token = b.token
