WITH found AS (
        SELECT 'execution' AS entity, l.id, 'is an attempt after a success' AS detail
          FROM ductwork_executions l
          JOIN ductwork_executions e ON e.step_id = l.step_id AND e.result = 'success'
         WHERE l.attempt <> 1 AND e.attempt < l.attempt) SELECT * FROM found LIMIT ?
