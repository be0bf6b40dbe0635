INSERT INTO ductwork_advancements
    (id, transition_id, branch_id, process_id, claim_token, crash_count, claimed_at, lease_until)
SELECT b.id, t.id, br.id, ?, b.token, t.crash_count, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?
  FROM (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS branch_id, UNHEX(j.c2) AS token FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]', c2 char(32) PATH '$[2]')) AS j) AS b
  JOIN ductwork_branches br ON br.id = b.branch_id AND br.claim_token = b.token
  JOIN ductwork_transitions t ON t.from_step_id = br.step_id AND t.completed_at IS NULL
