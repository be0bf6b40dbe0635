WITH found AS (
        SELECT 'execution' AS entity, id, 'has a lease that expired ' || ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - lease_until) / 1000000) || ' s ago' AS detail
          FROM ductwork_executions
         WHERE completed_at IS NULL AND process_id IS NOT NULL AND lease_until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
        UNION ALL
        SELECT 'advancement', id, 'has a lease that expired ' || ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - lease_until) / 1000000) || ' s ago'
          FROM ductwork_advancements
         WHERE completed_at IS NULL AND lease_until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
        UNION ALL
        SELECT 'branch', branch_id, 'has a question whose deadline passed ' || ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - answer_by) / 1000000) || ' s ago'
          FROM ductwork_deadlines WHERE answer_by < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ? AND unanswered IN ('halt', 'approve')
        UNION ALL
        SELECT 'run', id, 'is being cancelled, but nobody has gone on with it for '
               || ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - cancelling_at) / 1000000) || ' s'
          FROM ductwork_runs WHERE cancelling_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
        UNION ALL
        SELECT 'run', id, 'is being deleted, but nobody has gone on with it for '
               || ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - pruning_at) / 1000000) || ' s'
          FROM ductwork_runs WHERE pruning_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?) SELECT * FROM found LIMIT ?
