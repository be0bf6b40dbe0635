SELECT 1 AS found FROM ductwork_runs WHERE id = ?1 AND pruning_at IS NULL
