SELECT definition FROM ductwork_runs WHERE id = ?
