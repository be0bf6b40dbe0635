SELECT id, last_heartbeat_at AS moment, paused FROM ductwork_processes
 WHERE id = ? AND epoch <= ?
