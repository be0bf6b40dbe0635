SELECT s.id, s.node, s.status, s.source_step_id, s.created_at, s.completed_at, br.fan_out_id, br.ordinal AS place,
       (SELECT min(e.claimed_at) FROM ductwork_executions e WHERE e.step_id = s.id) AS started_at
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.branch_id = br.id
 WHERE br.run_id = ? AND br.fan_out_id IS NULL
 ORDER BY s.ordinal LIMIT ?
