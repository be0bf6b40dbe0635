WITH due AS MATERIALIZED (
    SELECT execution_id FROM ductwork_availabilities
     WHERE pipeline = $1 AND due_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint
     ORDER BY due_at, execution_id LIMIT $2 FOR UPDATE SKIP LOCKED)
DELETE FROM ductwork_availabilities
 WHERE execution_id IN (SELECT execution_id FROM due)
RETURNING execution_id
