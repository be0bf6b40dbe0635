UPDATE ductwork_branches
   SET status = b.status, step_id = b.step_id, halt_reason = b.halt_reason, output = b.output,
       claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = NULL, last_advanced_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT unhex(value->>0) AS id, unhex(value->>1) AS from_step_id, unhex(value->>2) AS token, value->>3 AS status, unhex(value->>4) AS step_id, value->>5 AS halt_reason, value->>6 AS output FROM json_each(?1)) AS b
 WHERE ductwork_branches.id = b.id
   AND ductwork_branches.step_id = b.from_step_id
   AND ductwork_branches.status IN ('in_progress', 'advancing', 'waiting')
   AND (ductwork_branches.claim_token = b.token
        OR (ductwork_branches.claim_token IS NULL AND b.token IS NULL))
