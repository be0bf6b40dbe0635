WITH found AS (
        SELECT 'execution' AS entity, l.id, 'is attempt ' || l.attempt || ', but the one before is missing' AS detail
          FROM ductwork_executions l
          LEFT JOIN ductwork_executions p ON p.step_id = l.step_id AND p.attempt = l.attempt - 1
         WHERE l.attempt <> 1 AND p.id IS NULL
        UNION ALL
        SELECT 'step', step_id, 'has ' || count(*) || ' attempts of one number'
          FROM ductwork_executions WHERE attempt <> 1
         GROUP BY step_id, attempt HAVING count(*) > 1) SELECT * FROM found LIMIT ?
