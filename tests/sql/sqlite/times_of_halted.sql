SELECT s.id, s.node, s.status, s.source_step_id, s.created_at, s.completed_at, br.fan_out_id, br.ordinal AS place,
       (SELECT min(e.claimed_at) FROM ductwork_executions e WHERE e.step_id = s.id) AS started_at
  FROM (SELECT x.id FROM ductwork_branches x 
         WHERE x.run_id = ?1 AND x.halt_reason IS NOT NULL
         ORDER BY x.id LIMIT ?2) halted
  JOIN ductwork_branches br ON br.id = halted.id
  JOIN ductwork_steps s ON s.id = br.step_id
 ORDER BY s.created_at, s.id
