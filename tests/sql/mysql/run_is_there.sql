SELECT 1 AS found FROM ductwork_runs WHERE id = ? AND pruning_at IS NULL
