SELECT s.id, s.node, s.status, s.source_step_id, s.created_at, s.completed_at, br.fan_out_id, br.ordinal AS place,
       (SELECT min(e.claimed_at) FROM ductwork_executions e WHERE e.step_id = s.id) AS started_at
  FROM (SELECT UNHEX(j.c0) AS fan_out, j.c1 AS place FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 bigint PATH '$[1]')) AS j) AS b
  JOIN ductwork_branches br ON br.fan_out_id = b.fan_out AND br.ordinal = b.place
  JOIN ductwork_steps s ON s.branch_id = br.id
 ORDER BY s.created_at, s.id LIMIT ?
