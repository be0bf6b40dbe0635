INSERT INTO ductwork_tuples (run_id, "key", value, first_set_at, last_set_at)
WITH mine AS (
    SELECT e.id FROM ductwork_executions e
     WHERE e.id = ? AND e.process_id = ? AND e.completed_at IS NULL FOR UPDATE)
SELECT r.id, ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM mine JOIN ductwork_runs r ON r.id = ?
 WHERE r.pruning_at IS NULL LOCK IN SHARE MODE
ON DUPLICATE KEY UPDATE value = VALUES(value), last_set_at = VALUES(last_set_at)
