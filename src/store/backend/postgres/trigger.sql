-- Starts runs: one statement, one round trip. Each part is named after the statement of
-- `../sqlite/trigger.sql` that does the same there.

-- name: TRIGGER
WITH
made AS (SELECT * FROM {rows:new_runs}),
-- part: INSERT_RUNS
runs AS (
    INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at, trace_parent,
                               trace_state, baggage)
    SELECT made.id, :pipeline, :definition, made.input, made.trigger_key, {now}, :trace_parent,
           :trace_state, :baggage
      FROM made),
-- part: INSERT_ROOTS
roots AS (
    INSERT INTO ductwork_branches (id, run_id, pipeline, ordinal, status, step_id, last_advanced_at)
    SELECT made.branch_id, made.id, :pipeline, 0, 'in_progress', made.step_id, {now} FROM made),
-- part: INSERT_STARTS
starts AS (
    INSERT INTO ductwork_steps
        (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
    SELECT made.step_id, made.id, made.branch_id, 0, :node, :step, 'start', 'in_progress', made.input, {now}
      FROM made),
-- part: INSERT_FIRST_EXECUTIONS
executions AS (
    INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
    SELECT made.execution_id, made.step_id, :pipeline, 1 FROM made),
-- part: INSERT_FIRST_AVAILABILITIES
availabilities AS (
    INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
    SELECT made.execution_id, :pipeline, {now} + :delay FROM made)
SELECT made.id FROM made

-- name: TRIGGER_KEYED
WITH
asked AS (SELECT * FROM {rows:new_runs}),
-- part: INSERT_KEYED_RUNS
-- RACE: two triggers with one key. The unique index lets one insert win; the other inserts nothing,
-- and reads the winner's run (T1). Proven by `triggers_with_one_key_make_one_run`.
runs AS (
    INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at, trace_parent,
                               trace_state, baggage)
    SELECT asked.id, :pipeline, :definition, asked.input, asked.trigger_key, {now}, :trace_parent,
           :trace_state, :baggage
      FROM asked
        ON CONFLICT (pipeline, trigger_key) WHERE trigger_key IS NOT NULL DO NOTHING
    RETURNING id),
-- As an array: the server does not hash joins between the parts of a statement.
made AS (SELECT asked.* FROM asked WHERE asked.id = ANY (ARRAY(SELECT id FROM runs))),
-- part: INSERT_ROOTS
roots AS (
    INSERT INTO ductwork_branches (id, run_id, pipeline, ordinal, status, step_id, last_advanced_at)
    SELECT made.branch_id, made.id, :pipeline, 0, 'in_progress', made.step_id, {now} FROM made),
-- part: INSERT_STARTS
starts AS (
    INSERT INTO ductwork_steps
        (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
    SELECT made.step_id, made.id, made.branch_id, 0, :node, :step, 'start', 'in_progress', made.input, {now}
      FROM made),
-- part: INSERT_FIRST_EXECUTIONS
executions AS (
    INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
    SELECT made.execution_id, made.step_id, :pipeline, 1 FROM made),
-- part: INSERT_FIRST_AVAILABILITIES
availabilities AS (
    INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
    SELECT made.execution_id, :pipeline, {now} + :delay FROM made)
SELECT made.id FROM made
