WITH found AS MATERIALIZED (
        SELECT 'execution' AS entity, id, 'has a lease that expired ' || ((CAST(unixepoch('subsec') * 1000000 AS INTEGER) - lease_until) / 1000000) || ' s ago' AS detail
          FROM ductwork_executions
         WHERE completed_at IS NULL AND process_id IS NOT NULL AND lease_until < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1
        UNION ALL
        SELECT 'advancement', id, 'has a lease that expired ' || ((CAST(unixepoch('subsec') * 1000000 AS INTEGER) - lease_until) / 1000000) || ' s ago'
          FROM ductwork_advancements
         WHERE completed_at IS NULL AND lease_until < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1) SELECT * FROM found LIMIT ?2
