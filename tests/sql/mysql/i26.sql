WITH found AS (
        SELECT 'process' AS entity, p.id,
               'has nothing to do, while work of ' || p.pipeline || ' is due for '
                || ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - (SELECT min(a.due_at) FROM ductwork_availabilities a WHERE a.pipeline = p.pipeline)) / 1000000)
                || ' s' AS detail
          FROM ductwork_processes p
         WHERE p.role = 'worker' AND p.last_heartbeat_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ? AND p.started_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
           AND p.trouble IS NULL AND coalesce(p.paused, 0) = 0
           AND NOT EXISTS (SELECT 1 FROM ductwork_executions e
                            WHERE e.process_id = p.id AND e.completed_at IS NULL AND e.process_id IS NOT NULL)
           AND (SELECT min(a.due_at) FROM ductwork_availabilities a WHERE a.pipeline = p.pipeline) < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
        UNION ALL
        SELECT 'process', p.id,
               'has nothing to do, while a branch is ready for '
                || ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - (SELECT min(b.ready_at) FROM ductwork_branches b
                               WHERE b.ready_at IS NOT NULL AND (p.pipeline IS NULL OR b.pipeline = p.pipeline))) / 1000000)
                || ' s'
          FROM ductwork_processes p
         WHERE p.role = 'advancer' AND p.last_heartbeat_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ? AND p.started_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
           AND p.trouble IS NULL
           AND NOT EXISTS (SELECT 1 FROM ductwork_advancements a
                            WHERE a.process_id = p.id AND a.completed_at IS NULL)
           AND (SELECT min(b.ready_at) FROM ductwork_branches b
                 WHERE b.ready_at IS NOT NULL AND (p.pipeline IS NULL OR b.pipeline = p.pipeline)) < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?) SELECT * FROM found LIMIT ?
