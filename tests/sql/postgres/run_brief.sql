SELECT pipeline, status FROM ductwork_runs WHERE id = $1 AND pruning_at IS NULL
