SELECT r.id FROM ductwork_runs r FORCE INDEX (ductwork_runs_others)
 WHERE r.status <> 'completed' AND r.status = 'dampened' AND r.pipeline = ?
   AND r.id >= ? AND r.pruning_at IS NULL
 ORDER BY r.status, r.id LIMIT ?
