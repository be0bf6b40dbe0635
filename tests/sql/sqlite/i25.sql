WITH found AS MATERIALIZED (
        SELECT 'execution' AS entity, id, 'has a lease that expired ' || ((CAST(unixepoch('subsec') * 1000000 AS INTEGER) - lease_until) / 1000000) || ' s ago' AS detail
          FROM ductwork_executions
         WHERE completed_at IS NULL AND process_id IS NOT NULL AND lease_until < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1
        UNION ALL
        SELECT 'advancement', id, 'has a lease that expired ' || ((CAST(unixepoch('subsec') * 1000000 AS INTEGER) - lease_until) / 1000000) || ' s ago'
          FROM ductwork_advancements
         WHERE completed_at IS NULL AND lease_until < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1
        UNION ALL
        SELECT 'branch', branch_id, 'has a question whose deadline passed ' || ((CAST(unixepoch('subsec') * 1000000 AS INTEGER) - answer_by) / 1000000) || ' s ago'
          FROM ductwork_deadlines WHERE answer_by < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1 AND unanswered IN ('halt', 'approve')
        UNION ALL
        SELECT 'run', id, 'is being cancelled, but nobody has gone on with it for '
               || ((CAST(unixepoch('subsec') * 1000000 AS INTEGER) - cancelling_at) / 1000000) || ' s'
          FROM ductwork_runs WHERE cancelling_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1
        UNION ALL
        SELECT 'run', id, 'is being deleted, but nobody has gone on with it for '
               || ((CAST(unixepoch('subsec') * 1000000 AS INTEGER) - pruning_at) / 1000000) || ' s'
          FROM ductwork_runs WHERE pruning_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1) SELECT * FROM found LIMIT ?2
