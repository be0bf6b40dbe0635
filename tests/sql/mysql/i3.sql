WITH found AS (
        SELECT 'execution' AS entity, id, 'has a result but no end, or an end without a result' AS detail
          FROM ductwork_executions WHERE ((completed_at IS NULL) <> (result IS NULL))
        UNION ALL
        SELECT 'advancement', id, 'has a result but no end, or an end without a result'
          FROM ductwork_advancements WHERE ((completed_at IS NULL) <> (result IS NULL))) SELECT * FROM found LIMIT ?
