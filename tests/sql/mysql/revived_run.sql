SELECT pipeline, definition, triggered_at FROM ductwork_runs WHERE id = ?
