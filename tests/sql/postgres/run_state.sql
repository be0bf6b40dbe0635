SELECT status, output FROM ductwork_runs WHERE id = $1 AND pruning_at IS NULL
