SELECT status, output FROM ductwork_runs WHERE id = ? AND pruning_at IS NULL
