SELECT pipeline, status FROM ductwork_runs WHERE id = ? AND pruning_at IS NULL
