WITH found AS (
        SELECT 'execution' AS entity, e.id, 'is open, but its run is ' || r.status AS detail
          FROM ductwork_executions e
         CROSS JOIN ductwork_steps s
         CROSS JOIN ductwork_runs r
         WHERE e.completed_at IS NULL AND s.id = e.step_id AND r.id = s.run_id
           AND r.status IN ('completed', 'cancelled', 'halted')
           AND s.via <> 'on_wait' AND s.via <> CASE r.status WHEN 'halted' THEN 'on_halt' ELSE 'on_complete' END
        UNION ALL
        SELECT 'advancement', a.id, 'is open, but its run is ' || r.status
          FROM ductwork_advancements a
         CROSS JOIN ductwork_branches b
         CROSS JOIN ductwork_runs r
         WHERE a.completed_at IS NULL AND b.id = a.branch_id AND r.id = b.run_id
           AND r.status IN ('completed', 'cancelled', 'halted')) SELECT * FROM found LIMIT ?
