WITH found AS (
        SELECT 'execution' AS entity, e.id, 'is open and unclaimed, but not in the queue' AS detail
          FROM ductwork_executions e
          LEFT JOIN ductwork_availabilities a ON a.execution_id = e.id
         WHERE e.completed_at IS NULL AND e.process_id IS NULL AND a.execution_id IS NULL
        UNION ALL
        SELECT 'execution', a.execution_id, 'is in the queue, but closed, claimed, missing or of another pipeline'
          FROM ductwork_availabilities a
          LEFT JOIN ductwork_executions e ON e.id = a.execution_id
         WHERE e.id IS NULL OR e.completed_at IS NOT NULL OR e.process_id IS NOT NULL OR e.pipeline <> a.pipeline) SELECT * FROM found LIMIT ?
