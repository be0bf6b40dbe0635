WITH found AS (
        SELECT 'step' AS entity, s.id, 'has failed, but an execution of it is open' AS detail
          FROM ductwork_steps s
          JOIN ductwork_executions e ON e.step_id = s.id AND e.completed_at IS NULL
         WHERE s.status = 'failed'
        UNION ALL
        SELECT 'step', s.id, 'is in progress, but no execution of it is open'
          FROM ductwork_steps s
          LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.completed_at IS NULL
         WHERE s.status = 'in_progress' AND e.id IS NULL
        UNION ALL
        SELECT 'step', s.id, 'is ' || s.status || ', but an execution of it is open'
          FROM ductwork_executions e
          JOIN ductwork_steps s ON s.id = e.step_id
         WHERE e.completed_at IS NULL AND s.status NOT IN ('in_progress', 'failed')) SELECT * FROM found LIMIT ?
