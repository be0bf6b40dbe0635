SELECT e.process_id, s.run_id, s.id, s.node, e.attempt, e.claimed_at
  FROM ductwork_processes p
 CROSS JOIN ductwork_executions e 
 CROSS JOIN ductwork_steps s
 WHERE e.process_id = p.id AND e.completed_at IS NULL AND e.process_id IS NOT NULL
   AND s.id = e.step_id
 LIMIT ?1
