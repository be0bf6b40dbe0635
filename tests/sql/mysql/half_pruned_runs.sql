SELECT r.id FROM ductwork_runs r
 WHERE r.pruning_at IS NOT NULL ORDER BY r.pruning_at LIMIT ? FOR UPDATE SKIP LOCKED
