SELECT role, pipeline, host, pid, version, started_at FROM ductwork_processes
 WHERE id = ? FOR UPDATE
