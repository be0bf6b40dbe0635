SELECT p.id, p.supervisor_id, p.role, p.pipeline, p.host, p.boot_id, p.pid_namespace, p.pid,
       p.pid_started_at, p.version, p.started_at, p.last_heartbeat_at, p.beat_seq,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS seen_at, p.epoch, p.claimed, p.succeeded, p.errored, p.crashed,
       p.advanced, p.stale, p.statements, p.quiet, p.paused, p.trouble, p.troubled_at,
       (SELECT count(*) FROM (SELECT b.id FROM ductwork_branches b WHERE b.ready_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) LIMIT 1) w) AS postponed
  FROM ductwork_processes p ORDER BY p.started_at, p.id
