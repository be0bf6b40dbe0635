WITH found AS (
        SELECT 'execution' AS entity, e.id, 'is claimed by a process that is not registered' AS detail
          FROM ductwork_executions e
          LEFT JOIN ductwork_processes p ON p.id = e.process_id
         WHERE e.completed_at IS NULL AND e.process_id IS NOT NULL AND p.id IS NULL
        UNION ALL
        SELECT 'advancement', a.id, 'is claimed by a process that is not registered'
          FROM ductwork_advancements a
          LEFT JOIN ductwork_processes p ON p.id = a.process_id
         WHERE a.completed_at IS NULL AND p.id IS NULL) SELECT * FROM found LIMIT ?
