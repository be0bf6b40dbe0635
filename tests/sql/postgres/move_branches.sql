UPDATE ductwork_branches
   SET status = b.to_status, step_id = b.to_step_id, halt_reason = b.reason, output = b.value,
       claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = NULL, last_advanced_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::uuid[], $6::text[], $7::text[]) AS b(id, from_step_id, token, to_status, to_step_id, reason, value)
 WHERE ductwork_branches.id = ANY (ARRAY[b.id])
   AND ductwork_branches.step_id = b.from_step_id
   AND ductwork_branches.status IN ('in_progress', 'advancing', 'waiting')
   AND ductwork_branches.claim_token IS NOT DISTINCT FROM b.token
