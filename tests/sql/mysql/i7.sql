WITH found AS (
        SELECT 'execution' AS entity, id, 'is the first attempt, but has errors or crashes before it' AS detail
          FROM ductwork_executions WHERE (attempt = 1 AND (retry_count <> 0 OR crash_count <> 0))) SELECT * FROM found LIMIT ?
