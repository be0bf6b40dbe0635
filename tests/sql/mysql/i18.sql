WITH found AS (
        SELECT 'branch' AS entity, b.id, 'is in progress, but nothing will move it' AS detail
          FROM ductwork_branches b
          LEFT JOIN ductwork_executions e ON e.step_id = b.step_id AND e.completed_at IS NULL
         WHERE b.status = 'in_progress' AND b.ready_at IS NULL AND e.id IS NULL
        UNION ALL
        SELECT 'branch', b.id, 'is ready to be advanced, but its step is ' || coalesce(s.status, 'missing')
          FROM ductwork_branches b
          LEFT JOIN ductwork_steps s ON s.id = b.step_id
         WHERE b.ready_at IS NOT NULL AND (s.id IS NULL OR s.status NOT IN ('advancing', 'failed'))
        UNION ALL
        SELECT 'branch', b.id, 'waits for a person, but its step is ' || coalesce(s.status, 'missing')
          FROM ductwork_branches b
          LEFT JOIN ductwork_steps s ON s.id = b.step_id
         WHERE b.status = 'dampened' AND (s.id IS NULL OR s.status <> 'waiting' OR s.via <> 'dampen')) SELECT * FROM found LIMIT ?
