SELECT role, pipeline, host, pid, version, started_at, epoch FROM ductwork_processes
 WHERE id = ?1 
