INSERT INTO ductwork_tuples (run_id, "key", value, first_set_at, last_set_at)
SELECT r.id, ?1, ?2, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER) FROM ductwork_runs r
 WHERE r.id = ?3 AND r.pruning_at IS NULL 
ON CONFLICT (run_id, "key") DO UPDATE SET value = excluded.value, last_set_at = excluded.last_set_at
