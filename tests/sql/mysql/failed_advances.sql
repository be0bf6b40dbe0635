SELECT br.id, br.pipeline, t.id AS transition_id, t.retry_count
  FROM (SELECT UNHEX(j.c0) AS branch_id, UNHEX(j.c1) AS token FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]')) AS j) AS b
  JOIN ductwork_branches br ON br.id = b.branch_id AND br.claim_token = b.token
  JOIN ductwork_transitions t ON t.from_step_id = br.step_id
