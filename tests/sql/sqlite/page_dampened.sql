SELECT r.id FROM ductwork_runs r INDEXED BY ductwork_runs_others
 WHERE r.status <> 'completed' AND r.status = 'dampened' AND r.pipeline = ?1
   AND r.id >= ?2 AND r.pruning_at IS NULL
 ORDER BY r.status, r.id LIMIT ?3
