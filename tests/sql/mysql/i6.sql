WITH found AS (
        SELECT 'step' AS entity, step_id AS id,
               'has ' || count(*) || ' attempts, numbered ' || min(attempt) || ' to ' || max(attempt) AS detail
          FROM ductwork_executions
         GROUP BY step_id HAVING min(attempt) <> 1 OR max(attempt) <> count(*)) SELECT * FROM found LIMIT ?
