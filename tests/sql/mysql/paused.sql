SELECT paused FROM ductwork_processes WHERE id = ?
