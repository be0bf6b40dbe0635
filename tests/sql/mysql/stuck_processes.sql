SELECT p.id, p.supervisor_id, p.role, p.pipeline, p.host, p.pid, p.version, p.quiet, p.epoch, p.trouble,
       p.troubled_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - p.last_heartbeat_at AS age, coalesce(p.worked_at, p.started_at) AS moved_at,
       (SELECT count(*) FROM ductwork_executions e FORCE INDEX (ductwork_executions_claimed)
         WHERE e.process_id = p.id AND e.completed_at IS NULL AND e.process_id IS NOT NULL AND e.holder = p.id)
       + (SELECT count(*) FROM ductwork_advancements a FORCE INDEX (ductwork_advancements_claimed)
           WHERE a.process_id = p.id AND a.completed_at IS NULL AND a.holder = p.id) AS holds
  FROM ductwork_processes p ORDER BY p.started_at, p.id
