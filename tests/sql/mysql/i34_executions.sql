WITH found AS (
        SELECT 'execution' AS entity, e.id, 'is an attempt at no step' AS detail
          FROM ductwork_executions e
          LEFT JOIN ductwork_steps s ON s.id = e.step_id
         WHERE e.attempt = 1 AND s.id IS NULL) SELECT * FROM found LIMIT ?
