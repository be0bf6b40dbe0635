UPDATE ductwork_processes SET paused = ? WHERE pipeline = ? AND paused IS NOT NULL
