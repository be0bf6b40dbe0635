SELECT br.id, br.run_id, br.pipeline, br.fan_out_id, br.ordinal, br.step_id,
       s.ordinal AS step_ordinal, s.node, CAST(octet_length(s.output) AS SIGNED) AS size,
       r.definition, t.id AS transition_id, t.retry_count, t.crash_count,
       a.id AS advancement_id, f.id AS begun_id,
       (SELECT c.ordinal + 1 FROM ductwork_branches c WHERE c.fan_out_id = f.id
         ORDER BY c.fan_out_id DESC, c.ordinal DESC LIMIT 1) AS made
  FROM (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS token FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]')) AS j) AS b
  JOIN ductwork_branches br ON br.id = b.id AND br.claim_token = b.token
  JOIN ductwork_steps s ON s.id = br.step_id
  JOIN ductwork_runs r ON r.id = br.run_id
  JOIN ductwork_transitions t ON t.from_step_id = br.step_id
  JOIN ductwork_advancements a FORCE INDEX (ductwork_advancements_open) ON a.branch_id = br.id AND a.completed_at IS NULL AND a.open_branch = br.id
  LEFT JOIN ductwork_fan_outs f ON f.branch_id = br.id AND f.fired_at IS NULL
 ORDER BY br.id
