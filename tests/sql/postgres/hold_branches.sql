UPDATE ductwork_branches SET last_advanced_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::uuid[]) AS b(id, token)
 WHERE ductwork_branches.id = ANY (ARRAY[b.id]) AND ductwork_branches.claim_token = b.token
