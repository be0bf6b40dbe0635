SELECT r.id, r.pruning_at FROM ductwork_runs r
 WHERE r.pruning_at IS NOT NULL AND r.pruning_at >= ?1
   AND (r.pruning_at, r.id) > (?1, ?2)
   AND NOT EXISTS (SELECT 1 FROM ductwork_runs n WHERE n.revived_from = r.id)
 ORDER BY r.pruning_at, r.id LIMIT ?3 
