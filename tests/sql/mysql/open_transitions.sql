INSERT INTO ductwork_transitions (id, run_id, branch_id, from_step_id, opened_at)
SELECT b.id, br.run_id, br.id, br.step_id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS branch_id, UNHEX(j.c2) AS token FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]', c2 char(32) PATH '$[2]')) AS j) AS b
  JOIN ductwork_branches br ON br.id = b.branch_id AND br.claim_token = b.token
 WHERE true AND NOT EXISTS (SELECT 1 FROM ductwork_transitions t WHERE t.from_step_id = br.step_id)
ON DUPLICATE KEY UPDATE from_step_id = ductwork_transitions.from_step_id
