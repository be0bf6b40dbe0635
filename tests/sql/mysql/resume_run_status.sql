SELECT status FROM ductwork_runs WHERE id = ?
