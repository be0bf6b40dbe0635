WITH found AS MATERIALIZED (
        SELECT 'delivery' AS entity, d.id, 'has a state that is none' AS detail
          FROM ductwork_deliveries d WHERE d.state NOT IN ('waiting', 'delivered', 'failed')
        UNION ALL
        SELECT 'delivery', d.id, 'counts fewer attempts than none' FROM ductwork_deliveries d WHERE d.attempts < 0
        UNION ALL
        SELECT 'delivery', d.id, 'is due, but does not wait, or waits and is never due'
          FROM ductwork_deliveries d
         WHERE CASE WHEN d.state = 'waiting' THEN 1 ELSE 0 END <> CASE WHEN d.due_at IS NULL THEN 0 ELSE 1 END
        UNION ALL
        SELECT 'delivery', d.id, 'is about a run that does not exist'
          FROM ductwork_deliveries d
          LEFT JOIN ductwork_runs r ON r.id = d.run_id
         WHERE r.id IS NULL AND d.created_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1) SELECT * FROM found LIMIT ?2
