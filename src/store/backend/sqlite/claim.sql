-- Claims executions: one statement after another, in one transaction.

-- name: TAKE_AVAILABILITIES
-- MATERIALIZED: a planner may run a plain subquery again and take more than its limit (C7).
-- Availabilities that were taken before are skipped by their place.
WITH due AS MATERIALIZED (
    SELECT execution_id FROM ductwork_availabilities
     WHERE pipeline = :pipeline AND due_at <= {now}
       AND (due_at, execution_id) > (:behind, :behind_id)
     ORDER BY due_at, execution_id LIMIT :n)
DELETE FROM ductwork_availabilities
 WHERE execution_id IN (SELECT execution_id FROM due)
RETURNING execution_id AS id, due_at, {now} - due_at AS waited

-- name: STAMP_EXECUTIONS
UPDATE {into:ductwork_executions;taken(id id)}
   SET process_id = :process, claimed_at = {now}, lease_until = {now} + :lease
  {from:taken(id id)}
 WHERE ductwork_executions.id = taken.id
   AND ductwork_executions.process_id IS NULL
   AND ductwork_executions.result IS NULL
