SELECT pipeline, definition FROM ductwork_runs WHERE id = ?
