INSERT INTO ductwork_processes
    (id, supervisor_id, role, pipeline, host, boot_id, pid_namespace, pid, pid_started_at,
     version, started_at, last_heartbeat_at, paused)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8,
        $9, $10, (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint, $11)
