UPDATE ductwork_advancements
   SET completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, result = $1, error_class = $2, error_message = $3
  FROM unnest($4::uuid[], $5::uuid[]) AS b(branch_id, token)
 WHERE ductwork_advancements.branch_id = b.branch_id
   AND ductwork_advancements.claim_token = b.token
   AND ductwork_advancements.completed_at IS NULL
