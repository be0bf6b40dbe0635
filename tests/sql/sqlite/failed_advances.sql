SELECT br.id, br.pipeline, t.id AS transition_id, t.retry_count
  FROM (SELECT c0 AS branch_id, c1 AS token FROM ductwork_rows(?1)) AS b
  JOIN ductwork_branches br ON br.id = b.branch_id AND br.claim_token = b.token
  JOIN ductwork_transitions t ON t.from_step_id = br.step_id
