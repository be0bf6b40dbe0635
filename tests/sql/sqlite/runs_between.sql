SELECT id FROM ductwork_runs
 WHERE id >= ?1 AND id <= ?2 AND pruning_at IS NULL ORDER BY id LIMIT ?3
