WITH found AS (
        SELECT 'step' AS entity, step_id AS id, 'has ' || count(*) || ' open executions' AS detail
          FROM ductwork_executions WHERE completed_at IS NULL
         GROUP BY step_id HAVING count(*) > 1) SELECT * FROM found LIMIT ?
