INSERT INTO ductwork_transitions (id, run_id, branch_id, from_step_id, opened_at)
SELECT b.id, br.run_id, br.id, br.step_id, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS branch_id, c2 AS token FROM ductwork_rows(?1)) AS b
  JOIN ductwork_branches br ON br.id = b.branch_id AND br.claim_token = b.token
 WHERE true
ON CONFLICT (from_step_id) DO NOTHING
