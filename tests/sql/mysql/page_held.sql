SELECT e.process_id, s.run_id, s.id, s.node, e.attempt, e.claimed_at
  FROM ductwork_processes p
 STRAIGHT_JOIN ductwork_executions e FORCE INDEX (ductwork_executions_claimed)
 STRAIGHT_JOIN ductwork_steps s
 WHERE e.process_id = p.id AND e.completed_at IS NULL AND e.process_id IS NOT NULL AND e.holder = p.id
   AND s.id = e.step_id
 LIMIT ?
