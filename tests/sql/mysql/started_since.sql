SELECT r.id, r.pipeline, r.triggered_at FROM ductwork_runs r
 WHERE r.id > ? AND r.pruning_at IS NULL ORDER BY r.id LIMIT ?
