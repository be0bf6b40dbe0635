SELECT role, pipeline, host, pid, version, started_at FROM ductwork_processes
 WHERE id = $1 FOR UPDATE
