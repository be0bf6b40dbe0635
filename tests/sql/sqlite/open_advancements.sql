INSERT INTO ductwork_advancements
    (id, transition_id, branch_id, process_id, claim_token, crash_count, claimed_at, lease_until)
SELECT b.id, t.id, br.id, ?1, b.token, t.crash_count, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?2
  FROM (SELECT c0 AS id, c1 AS branch_id, c2 AS token FROM ductwork_rows(?3)) AS b
  JOIN ductwork_branches br ON br.id = b.branch_id AND br.claim_token = b.token
  JOIN ductwork_transitions t ON t.from_step_id = br.step_id AND t.completed_at IS NULL
