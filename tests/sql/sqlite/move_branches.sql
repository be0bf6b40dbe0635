UPDATE ductwork_branches
   SET status = b.to_status, step_id = b.to_step_id, halt_reason = b.reason, output = b.value,
       claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = NULL, last_advanced_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS from_step_id, c2 AS token, c3 AS to_status, c4 AS to_step_id, c5 AS reason, c6 AS value FROM ductwork_rows(?1)) AS b
 WHERE ductwork_branches.id = b.id
   AND ductwork_branches.step_id = b.from_step_id
   AND ductwork_branches.status IN ('in_progress', 'advancing', 'waiting')
   AND ductwork_branches.claim_token IS NOT DISTINCT FROM b.token
