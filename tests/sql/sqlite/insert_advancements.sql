INSERT INTO ductwork_advancements
    (id, transition_id, branch_id, process_id, claim_token, claimed_at, lease_until, completed_at, result)
SELECT b.id, b.transition_id, b.branch_id, ?1, b.claim_token, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), 'success'
  FROM (SELECT unhex(value->>0) AS id, unhex(value->>1) AS transition_id, unhex(value->>2) AS branch_id, unhex(value->>3) AS claim_token FROM json_each(?2)) AS b
