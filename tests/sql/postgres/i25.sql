WITH found AS MATERIALIZED (
        SELECT 'execution' AS entity, id, 'has a lease that expired ' || (((extract(epoch from statement_timestamp()) * 1000000)::bigint - lease_until) / 1000000) || ' s ago' AS detail
          FROM ductwork_executions
         WHERE completed_at IS NULL AND process_id IS NOT NULL AND lease_until < (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1
        UNION ALL
        SELECT 'advancement', id, 'has a lease that expired ' || (((extract(epoch from statement_timestamp()) * 1000000)::bigint - lease_until) / 1000000) || ' s ago'
          FROM ductwork_advancements
         WHERE completed_at IS NULL AND lease_until < (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1
        UNION ALL
        SELECT 'branch', branch_id, 'has a question whose deadline passed ' || (((extract(epoch from statement_timestamp()) * 1000000)::bigint - answer_by) / 1000000) || ' s ago'
          FROM ductwork_deadlines WHERE answer_by < (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1 AND unanswered IN ('halt', 'approve')
        UNION ALL
        SELECT 'run', id, 'is being cancelled, but nobody has gone on with it for '
               || (((extract(epoch from statement_timestamp()) * 1000000)::bigint - cancelling_at) / 1000000) || ' s'
          FROM ductwork_runs WHERE cancelling_at < (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1
        UNION ALL
        SELECT 'run', id, 'is being deleted, but nobody has gone on with it for '
               || (((extract(epoch from statement_timestamp()) * 1000000)::bigint - pruning_at) / 1000000) || ' s'
          FROM ductwork_runs WHERE pruning_at < (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1) SELECT * FROM found LIMIT $2
