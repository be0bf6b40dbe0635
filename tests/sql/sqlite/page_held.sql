SELECT h.process_id, s.run_id, s.id, s.node, h.attempt, h.claimed_at, h.held
  FROM (SELECT e.process_id, e.step_id, e.attempt, e.claimed_at,
               row_number() OVER (PARTITION BY e.process_id ORDER BY e.claimed_at, e.id) AS place,
               count(*) OVER (PARTITION BY e.process_id) AS held
          FROM ductwork_processes p
         CROSS JOIN ductwork_executions e 
         WHERE e.process_id = p.id AND e.completed_at IS NULL AND e.process_id IS NOT NULL) h
 CROSS JOIN ductwork_steps s
 WHERE h.place <= ?1 AND s.id = h.step_id
 ORDER BY h.process_id, h.place
