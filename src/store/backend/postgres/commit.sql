-- Commits the results of executions: one statement, one round trip. Each part is named after the
-- statement of `../sqlite/commit.sql` that does the same there.

-- name: COMMIT
-- The first part lets through the results whose execution is still ours; the parts that follow read
-- its output.
WITH
results AS (SELECT * FROM {rows:results}),
-- part: TOUCH_PROCESS
touched AS (
    UPDATE ductwork_processes SET beat_seq = beat_seq + 1, last_heartbeat_at = {now}
     WHERE id = :process AND epoch <= :epoch
    RETURNING id, last_heartbeat_at AS moment, paused),
-- part: CLOSE_EXECUTIONS
-- RACE: the reaper has given this execution to somebody else while we still ran it, and now we come
-- with a result. The first to write `completed_at` wins; the other matches no row (E1). An attempt is
-- a row of its own, so the fence holds even against ourselves, should we have claimed the next
-- attempt (E2). Proven by `a_late_commit_loses_after_the_reaper_took_the_claim`. (I4, I5) The
-- condition is on `result`, which is null as long as `completed_at` is (I3), because `completed_at`
-- is in partial indexes that a planner would scan for each row of the batch.
closed AS (
    UPDATE ductwork_executions
       SET completed_at = (SELECT moment FROM touched), result = results.result,
           error_class = results.error_class, error_message = results.error_message,
           error_backtrace = results.error_backtrace, log = results.log
      FROM results
     WHERE ductwork_executions.id = ANY (ARRAY[results.execution_id])
       AND ductwork_executions.process_id = :process
       AND ductwork_executions.result IS NULL
       AND EXISTS (SELECT 1 FROM touched)
    RETURNING results.*, completed_at AS moment),
-- part: LAST_AT_BARRIERS
-- A branch that ends in a fan-out arrives with its result, unless it would be the last: the advancer
-- handles the last arrival, and fires the barrier.
-- RACE: two workers with the last two siblings. The barrier's row is locked before it is read, so
-- the second sees the first's arrival, and exactly one of them is the last. Inner barriers before
-- outer ones, as an advancer's cascade takes them. Proven by
-- `the_last_two_siblings_at_two_workers_leave_one_to_the_advancer`. (I13)
held AS (
    SELECT barriers.*,
           CASE WHEN missing = row_number() OVER (PARTITION BY arrives_at ORDER BY step_id)
                THEN 1 ELSE 0 END AS last
      FROM (SELECT closed.*, f.missing
              FROM (SELECT * FROM closed ORDER BY arrives_at DESC) closed
              LEFT JOIN LATERAL (SELECT width - arrived AS missing FROM ductwork_fan_outs
                                  WHERE id = closed.arrives_at FOR UPDATE) f ON true) barriers),
-- part: ARRIVE_WITH_RESULT
arrived AS (
    UPDATE ductwork_fan_outs SET arrived = arrived + a.n
      FROM (SELECT held.arrives_at AS id, count(*) AS n FROM held
             WHERE held.arrives_at IS NOT NULL AND held.last = 0 GROUP BY held.arrives_at) a
     WHERE ductwork_fan_outs.id = ANY (ARRAY[a.id])),
-- part: END_STEPS
ended_steps AS (
    UPDATE ductwork_steps
       SET status = CASE WHEN held.last = 1 THEN 'advancing' ELSE held.step_status END,
           output = held.output, completed_at = held.moment
      FROM held
     WHERE ductwork_steps.id = ANY (ARRAY[held.step_id])
       AND held.step_status IS NOT NULL
       AND ductwork_steps.status = 'in_progress'),
-- part: MOVE_WITH_RESULT
moved AS (
    UPDATE ductwork_branches
       SET status = CASE WHEN held.ends = 1 AND held.last = 0 THEN 'completed' ELSE 'in_progress' END,
           step_id = coalesce(held.next_step_id, held.step_id),
           ready_at = CASE WHEN held.ready = 1 OR held.last = 1 THEN held.moment END,
           last_advanced_at = CASE WHEN held.ready = 1 OR held.last = 1
                                   THEN last_advanced_at ELSE held.moment END
      FROM held
     WHERE ductwork_branches.id = ANY (ARRAY[held.branch_id])
       AND (held.ready = 1 OR held.transition_id IS NOT NULL)
       AND ductwork_branches.step_id = held.step_id
       AND ductwork_branches.status = 'in_progress'
    RETURNING ductwork_branches.id AS id),
-- part: INSERT_NEXT_STEPS
next_steps AS (
    INSERT INTO ductwork_steps
        (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
    SELECT held.next_step_id, held.run_id, held.branch_id, held.next_ordinal, held.next_node,
           held.next_step, held.via, held.transition_id, 'in_progress', held.output, held.moment
      FROM held WHERE held.next_step_id IS NOT NULL),
-- part: INSERT_ATTEMPTS
attempts AS (
    INSERT INTO ductwork_executions
        (id, step_id, pipeline, attempt, retry_count, crash_count, process_id, claimed_at, lease_until)
    SELECT held.attempt_id, held.attempt_step_id, :pipeline, held.attempt, held.retry_count,
           held.crash_count,
           CASE WHEN held.leased = 1 THEN :process END,
           CASE WHEN held.leased = 1 THEN held.moment END,
           CASE WHEN held.leased = 1 THEN held.moment + :lease END
      FROM held WHERE held.attempt_id IS NOT NULL),
-- part: QUEUE_ATTEMPTS
-- MATERIALIZED: looked up once for all rows. While somebody holds an old snapshot, the index keeps
-- the entries claimed since, at its beginning, and each lookup scans them (D12).
head AS MATERIALIZED (
    SELECT min(a.due_at) AS due_at FROM ductwork_availabilities a WHERE a.pipeline = :pipeline),
queued AS (
    INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
    SELECT held.attempt_id, :pipeline,
           coalesce(held.moment + held.due_in,
                    (SELECT CASE WHEN head.due_at < held.moment THEN head.due_at - 1 END FROM head),
                    held.moment)
      FROM held WHERE held.attempt_id IS NOT NULL AND held.leased = 0),
-- part: RECORD_TRANSITIONS
transitions AS (
    INSERT INTO ductwork_transitions
        (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
    SELECT held.transition_id, held.run_id, held.branch_id, held.step_id, held.via,
           held.produced, held.moment, held.moment
      FROM held WHERE held.transition_id IS NOT NULL AND held.last = 0),
-- part: RECORD_ADVANCEMENTS
advancements AS (
    INSERT INTO ductwork_advancements
        (id, transition_id, branch_id, process_id, claim_token, claimed_at, lease_until, completed_at, result)
    SELECT held.advancement_id, held.transition_id, held.branch_id, :process, held.claim_token,
           held.moment, held.moment, held.moment, 'success'
      FROM held WHERE held.transition_id IS NOT NULL AND held.last = 0),
-- part: END_RUNS
ended_runs AS (
    UPDATE ductwork_runs SET status = 'completed', completed_at = held.moment, output = held.output
      FROM held
     WHERE ductwork_runs.id = ANY (ARRAY[held.run_id])
       AND held.ends = 1
       AND held.arrives_at IS NULL
       AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened'))
-- part: ALL_MOVED
-- A row without an execution means that the process is alive, but holds none of them. All or
-- nothing: the division refuses the statement when a branch was not at the step that its result
-- says (I9).
SELECT held.execution_id, held.last, touched.paused,
       1 / (CASE WHEN (SELECT count(*) FROM moved)
                    = (SELECT count(*) FROM held WHERE ready = 1 OR transition_id IS NOT NULL)
                 THEN 1 ELSE 0 END) AS whole
  FROM touched LEFT JOIN held ON true

-- name: COMMIT_SIMPLE
-- The same where no branch arrives at a barrier and no attempt goes to the queue: the cost of a
-- statement before its first row is the cost of its parts, and most batches need no more parts.
WITH
results AS (SELECT * FROM {rows:results}),
-- part: TOUCH_PROCESS
touched AS (
    UPDATE ductwork_processes SET beat_seq = beat_seq + 1, last_heartbeat_at = {now}
     WHERE id = :process AND epoch <= :epoch
    RETURNING id, last_heartbeat_at AS moment, paused),
-- part: CLOSE_EXECUTIONS
held AS (
    UPDATE ductwork_executions
       SET completed_at = (SELECT moment FROM touched), result = results.result,
           error_class = results.error_class, error_message = results.error_message,
           error_backtrace = results.error_backtrace, log = results.log
      FROM results
     WHERE ductwork_executions.id = ANY (ARRAY[results.execution_id])
       AND ductwork_executions.process_id = :process
       AND ductwork_executions.result IS NULL
       AND EXISTS (SELECT 1 FROM touched)
    RETURNING results.*, completed_at AS moment, 0 AS last),
-- part: END_STEPS
ended_steps AS (
    UPDATE ductwork_steps
       SET status = CASE WHEN held.last = 1 THEN 'advancing' ELSE held.step_status END,
           output = held.output, completed_at = held.moment
      FROM held
     WHERE ductwork_steps.id = ANY (ARRAY[held.step_id])
       AND held.step_status IS NOT NULL
       AND ductwork_steps.status = 'in_progress'),
-- part: MOVE_WITH_RESULT
moved AS (
    UPDATE ductwork_branches
       SET status = CASE WHEN held.ends = 1 AND held.last = 0 THEN 'completed' ELSE 'in_progress' END,
           step_id = coalesce(held.next_step_id, held.step_id),
           ready_at = CASE WHEN held.ready = 1 OR held.last = 1 THEN held.moment END,
           last_advanced_at = CASE WHEN held.ready = 1 OR held.last = 1
                                   THEN last_advanced_at ELSE held.moment END
      FROM held
     WHERE ductwork_branches.id = ANY (ARRAY[held.branch_id])
       AND (held.ready = 1 OR held.transition_id IS NOT NULL)
       AND ductwork_branches.step_id = held.step_id
       AND ductwork_branches.status = 'in_progress'
    RETURNING ductwork_branches.id AS id),
-- part: INSERT_NEXT_STEPS
next_steps AS (
    INSERT INTO ductwork_steps
        (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
    SELECT held.next_step_id, held.run_id, held.branch_id, held.next_ordinal, held.next_node,
           held.next_step, held.via, held.transition_id, 'in_progress', held.output, held.moment
      FROM held WHERE held.next_step_id IS NOT NULL),
-- part: INSERT_ATTEMPTS
attempts AS (
    INSERT INTO ductwork_executions
        (id, step_id, pipeline, attempt, retry_count, crash_count, process_id, claimed_at, lease_until)
    SELECT held.attempt_id, held.attempt_step_id, :pipeline, held.attempt, held.retry_count,
           held.crash_count,
           CASE WHEN held.leased = 1 THEN :process END,
           CASE WHEN held.leased = 1 THEN held.moment END,
           CASE WHEN held.leased = 1 THEN held.moment + :lease END
      FROM held WHERE held.attempt_id IS NOT NULL),
-- part: RECORD_TRANSITIONS
transitions AS (
    INSERT INTO ductwork_transitions
        (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
    SELECT held.transition_id, held.run_id, held.branch_id, held.step_id, held.via,
           held.produced, held.moment, held.moment
      FROM held WHERE held.transition_id IS NOT NULL AND held.last = 0),
-- part: RECORD_ADVANCEMENTS
advancements AS (
    INSERT INTO ductwork_advancements
        (id, transition_id, branch_id, process_id, claim_token, claimed_at, lease_until, completed_at, result)
    SELECT held.advancement_id, held.transition_id, held.branch_id, :process, held.claim_token,
           held.moment, held.moment, held.moment, 'success'
      FROM held WHERE held.transition_id IS NOT NULL AND held.last = 0),
-- part: END_RUNS
ended_runs AS (
    UPDATE ductwork_runs SET status = 'completed', completed_at = held.moment, output = held.output
      FROM held
     WHERE ductwork_runs.id = ANY (ARRAY[held.run_id])
       AND held.ends = 1
       AND held.arrives_at IS NULL
       AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened'))
-- part: ALL_MOVED
-- A row without an execution means that the process is alive, but holds none of them. All or
-- nothing: the division refuses the statement when a branch was not at the step that its result
-- says (I9).
SELECT held.execution_id, held.last, touched.paused,
       1 / (CASE WHEN (SELECT count(*) FROM moved)
                    = (SELECT count(*) FROM held WHERE ready = 1 OR transition_id IS NOT NULL)
                 THEN 1 ELSE 0 END) AS whole
  FROM touched LEFT JOIN held ON true
-- absent: LAST_AT_BARRIERS.1: the advancer may fire every barrier; here the column says who is last
