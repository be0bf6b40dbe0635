INSERT INTO ductwork_processes
    (id, supervisor_id, role, pipeline, host, boot_id, pid_namespace, pid, pid_started_at,
     version, started_at, last_heartbeat_at, paused)
VALUES (?, ?, ?, ?, ?, ?, ?, ?,
        ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ?)
