UPDATE ductwork_branches
   SET status = 'advancing', claim_token = b.token, claimed_for_advancing_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, ready_at = NULL
  FROM unnest($1::uuid[], $2::uuid[]) AS b(id, token)
 WHERE ductwork_branches.id = ANY (ARRAY[b.id]) AND ductwork_branches.ready_at IS NOT NULL
   AND ductwork_branches.status = 'in_progress'
