UPDATE ductwork_processes SET paused = $1 WHERE pipeline = $2 AND paused IS NOT NULL
