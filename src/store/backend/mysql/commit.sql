-- MySQL's own statements of the commit. `store/commit.rs` names the statement of SQLite that each one replaces; the
-- inserts are those of `../sqlite/commit.sql`. A statement that writes a table from a batch qualifies the columns that
-- it sets, because the batch has columns of the same name.

-- name: HELD_RESULTS
-- The results whose execution is still ours. It stays ours: its row is locked.
SELECT e.id AS execution_id
  FROM {rows:results} {join:ductwork_executions e} ON e.id = results.execution_id
 WHERE e.process_id = :process AND e.result IS NULL
 ORDER BY e.id {lock}

-- name: CLOSE_HELD
-- The claim's fence (I4, I5): see `../postgres/commit.sql`.
UPDATE {into:ductwork_executions;results}
   SET ductwork_executions.completed_at = {now}, ductwork_executions.result = results.result,
       ductwork_executions.error_class = results.error_class,
       ductwork_executions.error_message = results.error_message,
       ductwork_executions.error_backtrace = results.error_backtrace, ductwork_executions.log = results.log
  {from:results}
 WHERE ductwork_executions.id = results.execution_id
   AND ductwork_executions.process_id = :process
   AND ductwork_executions.result IS NULL

-- name: ALL_CLOSED
-- As many rows as are locked.
{whole:ROW_COUNT();FOUND_ROWS()}

-- name: LOCKED_LAST
-- RACE: two workers with the last two siblings. The barrier's row is locked before it is read, so the second sees
-- the first's arrival, and exactly one of them is the last. Proven by
-- `the_last_two_siblings_at_two_workers_leave_one_to_the_advancer`. (I13)
SELECT execution_id FROM (
    SELECT execution_id,
           CASE WHEN missing = row_number() OVER (PARTITION BY arrives_at ORDER BY step_id)
                THEN 1 ELSE 0 END AS last
      FROM (SELECT b.execution_id, b.step_id, b.arrives_at, f.width - f.arrived AS missing
              FROM {rows:b(execution_id id, step_id id, arrives_at id)}
              STRAIGHT_JOIN ductwork_fan_outs f FORCE INDEX (PRIMARY) ON f.id = b.arrives_at
             ORDER BY f.id DESC {lock}) barriers) numbered
 WHERE last = 1

-- name: ARRIVE_COUNTED
UPDATE (SELECT held.arrives_at AS id, count(*) AS n FROM {rows:held}
         WHERE held.arrives_at IS NOT NULL AND held.last = 0 GROUP BY held.arrives_at) a
       {join:ductwork_fan_outs}
   SET ductwork_fan_outs.arrived = ductwork_fan_outs.arrived + a.n
 WHERE ductwork_fan_outs.id = a.id

-- name: END_HELD_STEPS
-- Where the batch has one row, the planner reads the row that it names, and locks it, before it looks at any other
-- condition. So only a result that writes the row names it, here and below. Proven by
-- `a_result_waits_for_no_lock_on_a_row_that_it_does_not_write`.
UPDATE {into:ductwork_steps;held}
   SET ductwork_steps.status = CASE WHEN held.last = 1 THEN 'advancing' ELSE held.step_status END,
       ductwork_steps.output = held.output, ductwork_steps.completed_at = {now}
  {from:held}
 WHERE ductwork_steps.id = CASE WHEN held.step_status IS NOT NULL THEN held.step_id END
   AND ductwork_steps.status = 'in_progress'

-- name: MOVE_HELD
-- absent: MOVE_WITH_RESULT.1: only a result that writes the row names it.
UPDATE {into:ductwork_branches;held}
   SET ductwork_branches.status = CASE WHEN held.ends = 1 AND held.last = 0 THEN 'completed' ELSE 'in_progress' END,
       ductwork_branches.step_id = coalesce(held.next_step_id, held.step_id),
       ductwork_branches.ready_at = CASE WHEN held.ready = 1 OR held.last = 1 THEN {now} END,
       ductwork_branches.last_advanced_at = CASE WHEN held.ready = 1 OR held.last = 1
                                                 THEN ductwork_branches.last_advanced_at ELSE {now} END
  {from:held}
 WHERE ductwork_branches.id = CASE WHEN held.ready = 1 OR held.transition_id IS NOT NULL THEN held.branch_id END
   AND ductwork_branches.step_id = held.step_id
   AND ductwork_branches.status = 'in_progress'

-- name: ALL_HELD_MOVED
-- All or nothing: refused when a branch was not at the step that its result says (I9).
{whole:ROW_COUNT();:moves}

-- name: END_HELD_RUNS
-- absent: END_RUNS.3: it is there without the wrapping that SQLite needs.
UPDATE {into:ductwork_runs;held}
   SET ductwork_runs.status = 'completed', ductwork_runs.completed_at = {now}, ductwork_runs.output = held.output
  {from:held}
 WHERE ductwork_runs.id = CASE WHEN held.ends = 1 AND held.arrives_at IS NULL THEN held.run_id END
   AND ductwork_runs.status IN ('in_progress', 'dampened')

-- name: TOUCH_UNPAUSED
-- A separate request tells a process that it is paused.
UPDATE ductwork_processes SET beat_seq = beat_seq + 1, last_heartbeat_at = {now}
 WHERE id = :process AND epoch <= :epoch AND coalesce(paused, 0) = 0

-- name: ONE_TOUCHED
{whole:ROW_COUNT();1}

-- name: CLOSE_ALL
-- The claim's fence (I4, I5), for results that are `held` if all of them are.
UPDATE {into:ductwork_executions;held}
   SET ductwork_executions.completed_at = {now}, ductwork_executions.result = held.result,
       ductwork_executions.error_class = held.error_class,
       ductwork_executions.error_message = held.error_message,
       ductwork_executions.error_backtrace = held.error_backtrace, ductwork_executions.log = held.log
  {from:held}
 WHERE ductwork_executions.id = held.execution_id
   AND ductwork_executions.process_id = :process
   AND ductwork_executions.result IS NULL

-- name: ALL_ARE_CLOSED
{whole:ROW_COUNT();:all}

-- name: CLOSE_BARE
-- The claim's fence (I4, I5), likewise, for results without an error and without a log. A server keeps the rows that it
-- updates through a join in a table of its own until the join has ended; for rows with long texts, that costs MariaDB
-- half of the time. So this statement, and the two that end the step and the run of such a result, name their rows.
UPDATE ductwork_executions FORCE INDEX (PRIMARY)
   SET completed_at = {now}, result = {chosen:id;held.execution_id;result}
 WHERE {among:id;held.execution_id}
   AND process_id = :process
   AND result IS NULL

-- name: END_BARE_STEPS
-- absent: END_STEPS.1: each of these results ends its step.
UPDATE ductwork_steps FORCE INDEX (PRIMARY)
   SET status = {chosen:id;held.step_id;step_status}, output = {chosen:id;held.step_id;output}, completed_at = {now}
 WHERE {among:id;held.step_id}
   AND status = 'in_progress'

-- name: END_BARE_RUNS
-- absent: END_RUNS.1: only a result that ends its run names it.
-- absent: END_RUNS.2: none of these results arrives at a barrier.
-- absent: END_RUNS.3: it is there without the wrapping that SQLite needs.
UPDATE ductwork_runs FORCE INDEX (PRIMARY)
   SET status = 'completed', completed_at = {now}, output = {chosen:id;held.run_id;output;ends}
 WHERE {among:id;held.run_id;ends}
   AND status IN ('in_progress', 'dampened')
