SELECT 'execution' AS entity, e.id, 'is open, but its run is ' || r.status AS detail
  FROM ductwork_executions e
  JOIN ductwork_steps s ON s.id = e.step_id
  JOIN ductwork_runs r ON r.id = s.run_id
 WHERE e.completed_at IS NULL
   AND (r.status IN ('completed', 'cancelled') OR (r.status = 'halted' AND s.via <> 'on_halt'))
UNION ALL
SELECT 'advancement', a.id, 'is open, but its run is ' || r.status
  FROM ductwork_advancements a
  JOIN ductwork_branches b ON b.id = a.branch_id
  JOIN ductwork_runs r ON r.id = b.run_id
 WHERE a.completed_at IS NULL AND r.status IN ('completed', 'cancelled', 'halted')
 LIMIT ?1
