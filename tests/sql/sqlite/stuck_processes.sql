SELECT p.id, p.supervisor_id, p.role, p.pipeline, p.host, p.pid, p.version, p.quiet, p.epoch, p.trouble,
       p.troubled_at,
       CAST(unixepoch('subsec') * 1000000 AS INTEGER) - p.last_heartbeat_at AS age, coalesce(p.worked_at, p.started_at) AS moved_at,
       (SELECT count(*) FROM ductwork_executions e 
         WHERE e.process_id = p.id AND e.completed_at IS NULL AND e.process_id IS NOT NULL)
       + (SELECT count(*) FROM ductwork_advancements a 
           WHERE a.process_id = p.id AND a.completed_at IS NULL) AS holds
  FROM ductwork_processes p ORDER BY p.started_at, p.id
