INSERT INTO ductwork_tuples (run_id, "key", value, first_set_at, last_set_at)
WITH mine AS (
    SELECT e.id FROM ductwork_executions e
     WHERE e.id = $1 AND e.process_id = $2 AND e.completed_at IS NULL FOR NO KEY UPDATE)
SELECT r.id, $3, $4, (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint FROM mine JOIN ductwork_runs r ON r.id = $5
 WHERE r.pruning_at IS NULL FOR KEY SHARE
ON CONFLICT (run_id, "key") DO UPDATE SET value = excluded.value, last_set_at = excluded.last_set_at
