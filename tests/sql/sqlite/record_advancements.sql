INSERT INTO ductwork_advancements
    (id, transition_id, branch_id, process_id, claim_token, claimed_at, lease_until, completed_at, result)
SELECT held.advancement_id, held.transition_id, held.branch_id, ?1, held.claim_token,
       CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), 'success'
  FROM batch_held(?2) AS held WHERE held.transition_id IS NOT NULL AND held.last = 0
