-- Claims executions: one statement, one round trip. Each part is named after the statement of
-- `../sqlite/claim.sql` that does the same there.

-- name: CLAIM
WITH
-- part: TOUCH_PROCESS
-- A process whose row is gone was declared dead: it claims nothing until it has registered anew. A claim that
-- it sent through a connection that it has given up since takes nothing either (`FENCE_EARLIER`). RACE: the
-- reaper takes the row while we claim. Both write it, so one waits for the other: either the reaper sees our
-- claims, or we see that the row is gone (C4, R3). Proven by `a_process_that_was_declared_dead_claims_nothing`.
-- (I22) RACE: the pipeline is paused while we claim. A pause writes this row too: either it waits for us, and
-- our claim precedes it, or we see that we are paused, and take nothing. Proven by
-- `a_claim_that_waits_for_a_pause_takes_nothing` and `a_pause_waits_for_a_claim_that_is_under_way`.
touched AS (
    UPDATE ductwork_processes SET beat_seq = beat_seq + 1, last_heartbeat_at = {now}
     WHERE id = :process AND epoch <= :epoch
    RETURNING id, last_heartbeat_at AS moment, paused),
-- part: TAKE_AVAILABILITIES
-- MATERIALIZED: a planner with bad statistics may run a plain subquery again and take more than its limit (C7).
-- Availabilities that were taken before are skipped by their place: while somebody holds an old snapshot, the
-- index keeps them, and would be scanned from its beginning (D12).
-- ANY (ARRAY …), here and below: a plan that was made while the queue was empty, and is kept, must not read all of a
-- queue that is long by now to find these rows. Proven by
-- `a_plan_that_was_made_while_the_queue_was_empty_reads_a_few_rows_of_a_long_one`.
taken AS (
    WITH due AS MATERIALIZED (
        SELECT execution_id FROM ductwork_availabilities
         WHERE pipeline = :pipeline AND due_at <= {now}
           AND (due_at, execution_id) > (:behind, :behind_id)
           AND EXISTS (SELECT 1 FROM touched WHERE coalesce(paused, 0) = 0)
         ORDER BY due_at, execution_id LIMIT :n FOR UPDATE SKIP LOCKED)
    DELETE FROM ductwork_availabilities
     WHERE execution_id = ANY (ARRAY(SELECT execution_id FROM due))
    RETURNING execution_id AS id, due_at),
-- part: STAMP_EXECUTIONS
stamped AS (
    UPDATE ductwork_executions
       SET process_id = :process, claimed_at = (SELECT moment FROM touched),
           lease_until = (SELECT moment FROM touched) + :lease
      FROM taken
     WHERE ductwork_executions.id = ANY (ARRAY[taken.id])
       AND ductwork_executions.process_id IS NULL
       AND ductwork_executions.result IS NULL
    RETURNING ductwork_executions.id AS id, step_id, attempt, retry_count, crash_count,
              (SELECT moment FROM touched) - taken.due_at AS waited)
-- A row without an execution means that the process is alive, but nothing was due or the process is paused. All or
-- nothing: the division refuses the statement when an available execution was not free to be claimed (I2).
SELECT e.id, e.step_id, e.attempt, e.retry_count, e.crash_count,
       s.run_id, s.branch_id, s.ordinal AS step_ordinal, s.node, s.step, s.via,
       CASE WHEN octet_length(s.input) <= 16384 THEN s.input END AS input,
       CAST(octet_length(s.input) AS bigint) AS size,
       br.fan_out_id, br.ordinal, r.definition, r.trace_parent, r.trace_state, r.baggage, e.waited,
       touched.paused,
       (SELECT max(due_at) FROM taken) AS last_due_at,
       (SELECT id FROM taken ORDER BY due_at DESC, id DESC LIMIT 1) AS last_id,
       1 / (CASE WHEN (SELECT count(*) FROM stamped) = (SELECT count(*) FROM taken)
                 THEN 1 ELSE 0 END) AS whole
  FROM touched
  LEFT JOIN (stamped e
        JOIN ductwork_steps s ON s.id = ANY (ARRAY[e.step_id])
        JOIN ductwork_branches br ON br.id = ANY (ARRAY[s.branch_id])
        JOIN ductwork_runs r ON r.id = ANY (ARRAY[s.run_id])) ON true
 ORDER BY e.id
