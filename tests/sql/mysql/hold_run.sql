UPDATE ductwork_runs SET revivals = revivals + 1 WHERE id = ? AND pruning_at IS NULL
