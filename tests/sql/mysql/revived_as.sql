SELECT id FROM ductwork_runs WHERE revived_from = ?
