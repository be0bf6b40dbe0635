SELECT r.id, r.pruning_at FROM ductwork_runs r
 WHERE r.pruning_at IS NOT NULL AND r.pruning_at >= ?
   AND (r.pruning_at, r.id) > (?, ?)
   AND NOT EXISTS (SELECT 1 FROM ductwork_runs n WHERE n.revived_from = r.id)
 ORDER BY r.pruning_at, r.id LIMIT ? FOR UPDATE SKIP LOCKED
