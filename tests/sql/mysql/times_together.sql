SELECT br.run_id, s.id, s.node, s.status, s.source_step_id, s.created_at, s.completed_at, br.fan_out_id, br.ordinal AS place,
       (SELECT min(e.claimed_at) FROM ductwork_executions e WHERE e.step_id = s.id) AS started_at
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b
  JOIN ductwork_branches br ON br.run_id = b.id
  JOIN ductwork_steps s ON s.branch_id = br.id
 LIMIT ?
