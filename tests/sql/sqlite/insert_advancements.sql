INSERT INTO ductwork_advancements
    (id, transition_id, branch_id, process_id, claim_token, claimed_at, lease_until, completed_at, result)
SELECT b.id, b.transition_id, b.branch_id, ?1, b.claim_token, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), 'success'
  FROM (SELECT c0 AS id, c1 AS transition_id, c2 AS branch_id, c3 AS claim_token FROM ductwork_rows(?2)) AS b
