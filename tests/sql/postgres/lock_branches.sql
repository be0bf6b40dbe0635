SELECT br.id, br.claim_token FROM unnest($1::uuid[], $2::uuid[]) AS b(id, token)
  JOIN ductwork_branches br ON br.id = ANY (ARRAY[b.id]) AND br.claim_token = b.token
 ORDER BY br.id FOR NO KEY UPDATE
