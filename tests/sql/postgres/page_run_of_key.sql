SELECT r.id FROM ductwork_runs r
 WHERE r.pipeline = $1 AND r.trigger_key = $2 AND r.pruning_at IS NULL
