INSERT INTO ductwork_tuples (run_id, "key", value, first_set_at, last_set_at)
WITH mine AS (
    SELECT e.id FROM ductwork_executions e
     WHERE e.id = ?1 AND e.process_id = ?2 AND e.completed_at IS NULL )
SELECT r.id, ?3, ?4, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER) FROM mine JOIN ductwork_runs r ON r.id = ?5
 WHERE r.pruning_at IS NULL 
ON CONFLICT (run_id, "key") DO UPDATE SET value = excluded.value, last_set_at = excluded.last_set_at
