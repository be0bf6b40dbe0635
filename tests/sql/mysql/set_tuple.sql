INSERT INTO ductwork_tuples (run_id, "key", value, first_set_at, last_set_at)
SELECT r.id, ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM ductwork_runs r
 WHERE r.id = ? AND r.pruning_at IS NULL LOCK IN SHARE MODE
ON DUPLICATE KEY UPDATE value = VALUES(value), last_set_at = VALUES(last_set_at)
