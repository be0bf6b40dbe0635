INSERT INTO ductwork_tuples (run_id, "key", value, first_set_at, last_set_at)
SELECT r.id, $1, $2, (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint FROM ductwork_runs r
 WHERE r.id = $3 AND r.pruning_at IS NULL FOR KEY SHARE
ON CONFLICT (run_id, "key") DO UPDATE SET value = excluded.value, last_set_at = excluded.last_set_at
