SELECT id FROM ductwork_runs
 WHERE id >= ? AND id <= ? AND pruning_at IS NULL ORDER BY id LIMIT ?
