-- Commits the results of executions: one statement after another, in one transaction. The first
-- lets through the results whose execution is still ours; those that follow receive these results
-- as `held`. MySQL runs the inserts of this file, too (`INSERT_NEXT_STEPS` to `RECORD_ADVANCEMENTS`); for the rest,
-- `../mysql/commit.sql` has statements of its own.

-- name: CLOSE_EXECUTIONS
-- The claim's fence (I4, I5): see `../postgres/commit.sql`.
UPDATE ductwork_executions
   SET completed_at = {now}, result = results.result, error_class = results.error_class,
       error_message = results.error_message, error_backtrace = results.error_backtrace,
       log = results.log
  FROM {rows:results}
 WHERE ductwork_executions.id = results.execution_id
   AND ductwork_executions.process_id = :process
   AND ductwork_executions.result IS NULL
RETURNING ductwork_executions.id AS execution_id

-- name: LAST_AT_BARRIERS
-- Of the branches that would arrive, those that would be the last at their barriers: after them, no
-- branch is missing there. The advancer handles them (I13).
SELECT execution_id FROM (
    SELECT execution_id,
           CASE WHEN missing = row_number() OVER (PARTITION BY arrives_at ORDER BY step_id)
                THEN 1 ELSE 0 END AS last
      FROM (SELECT b.execution_id, b.step_id, b.arrives_at, f.width - f.arrived AS missing
              FROM {rows:b(execution_id id, step_id id, arrives_at id)}
              JOIN ductwork_fan_outs f ON f.id = b.arrives_at) barriers)
 WHERE last = 1

-- name: ARRIVE_WITH_RESULT
UPDATE ductwork_fan_outs SET arrived = arrived + a.n
  FROM (SELECT held.arrives_at AS id, count(*) AS n FROM {rows:held}
         WHERE held.arrives_at IS NOT NULL AND held.last = 0 GROUP BY held.arrives_at) a
 WHERE ductwork_fan_outs.id = a.id

-- name: END_STEPS
UPDATE ductwork_steps
   SET status = CASE WHEN held.last = 1 THEN 'advancing' ELSE held.step_status END,
       output = held.output, completed_at = {now}
  FROM {rows:held}
 WHERE ductwork_steps.id = held.step_id
   AND held.step_status IS NOT NULL
   AND ductwork_steps.status = 'in_progress'

-- name: MOVE_WITH_RESULT
-- The branch becomes ready for an advancer, or moves with the result. The guard of the move: while
-- an execution is open, its branch is at the execution's step, unclaimed.
UPDATE ductwork_branches
   SET status = CASE WHEN held.ends = 1 AND held.last = 0 THEN 'completed' ELSE 'in_progress' END,
       step_id = coalesce(held.next_step_id, held.step_id),
       ready_at = CASE WHEN held.ready = 1 OR held.last = 1 THEN {now} END,
       last_advanced_at = CASE WHEN held.ready = 1 OR held.last = 1
                               THEN last_advanced_at ELSE {now} END
  FROM {rows:held}
 WHERE ductwork_branches.id = held.branch_id
   AND (held.ready = 1 OR held.transition_id IS NOT NULL)
   AND ductwork_branches.step_id = held.step_id
   AND ductwork_branches.status = 'in_progress'

-- name: ALL_MOVED
-- All or nothing: refused when a branch was not at the step that its result says (I9). The smallest
-- integer has no absolute value: `integer overflow`.
SELECT abs(CASE WHEN changes() = :moves THEN 1 ELSE 0x8000000000000000 END) AS whole

-- name: INSERT_NEXT_STEPS
INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
SELECT held.next_step_id, held.run_id, held.branch_id, held.next_ordinal, held.next_node,
       held.next_step, held.via, held.transition_id, 'in_progress', held.output, {now}
  FROM {rows:held} WHERE held.next_step_id IS NOT NULL

-- name: INSERT_ATTEMPTS
INSERT INTO ductwork_executions
    (id, step_id, pipeline, attempt, retry_count, crash_count, process_id, claimed_at, lease_until)
SELECT held.attempt_id, held.attempt_step_id, :pipeline, held.attempt, held.retry_count,
       held.crash_count,
       CASE WHEN held.leased = 1 THEN :process END,
       CASE WHEN held.leased = 1 THEN {now} END,
       CASE WHEN held.leased = 1 THEN {now} + :lease END
  FROM {rows:held} WHERE held.attempt_id IS NOT NULL

-- name: QUEUE_ATTEMPTS
INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT held.attempt_id, :pipeline,
       coalesce({now} + held.due_in,
                (SELECT CASE WHEN min(a.due_at) < {now} THEN min(a.due_at) - 1 END
                   FROM ductwork_availabilities a WHERE a.pipeline = :pipeline),
                {now})
  FROM {rows:held} WHERE held.attempt_id IS NOT NULL AND held.leased = 0

-- name: RECORD_TRANSITIONS
INSERT INTO ductwork_transitions
    (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
SELECT held.transition_id, held.run_id, held.branch_id, held.step_id, held.via,
       held.produced, {now}, {now}
  FROM {rows:held} WHERE held.transition_id IS NOT NULL AND held.last = 0

-- name: RECORD_ADVANCEMENTS
INSERT INTO ductwork_advancements
    (id, transition_id, branch_id, process_id, claim_token, claimed_at, lease_until, completed_at, result)
SELECT held.advancement_id, held.transition_id, held.branch_id, :process, held.claim_token,
       {now}, {now}, {now}, 'success'
  FROM {rows:held} WHERE held.transition_id IS NOT NULL AND held.last = 0

-- name: END_RUNS
-- The status is wrapped, so that the row is looked up by its key: SQLite would otherwise scan all
-- runs in progress, and the end of a run would cost more the longer the queue.
UPDATE ductwork_runs SET status = 'completed', completed_at = {now}, output = held.output
  FROM {rows:held}
 WHERE ductwork_runs.id = held.run_id
   AND held.ends = 1
   AND held.arrives_at IS NULL
   AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')
