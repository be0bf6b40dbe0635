SELECT id, host, pid, version FROM ductwork_processes
 WHERE pipeline = ? AND paused IS NULL ORDER BY started_at, id
