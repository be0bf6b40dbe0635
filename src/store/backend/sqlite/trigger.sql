-- Starts runs: one statement after another, in one transaction.

-- name: INSERT_RUNS
INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at, trace_parent, trace_state,
                           baggage)
SELECT new_runs.id, :pipeline, :definition, new_runs.input, new_runs.trigger_key, {now}, :trace_parent,
       :trace_state, :baggage
  FROM {rows:new_runs}

-- name: INSERT_KEYED_RUNS
-- The unique index lets the first trigger of a key win; a second one inserts nothing, and reads the
-- first one's run (T1). `WHERE true`: without it, SQLite would take `ON` for the condition of a
-- join.
INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at, trace_parent, trace_state,
                           baggage)
SELECT new_runs.id, :pipeline, :definition, new_runs.input, new_runs.trigger_key, {now}, :trace_parent,
       :trace_state, :baggage
  FROM {rows:new_runs}
 WHERE true
ON CONFLICT (pipeline, trigger_key) WHERE trigger_key IS NOT NULL DO NOTHING
RETURNING id

-- name: INSERT_ROOTS
INSERT INTO ductwork_branches (id, run_id, pipeline, ordinal, status, step_id, last_advanced_at)
SELECT new_runs.branch_id, new_runs.id, :pipeline, 0, 'in_progress', new_runs.step_id, {now}
  FROM {rows:new_runs}

-- name: INSERT_STARTS
INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT new_runs.step_id, new_runs.id, new_runs.branch_id, 0, :node, :step, 'start', 'in_progress',
       new_runs.input, {now}
  FROM {rows:new_runs}

-- name: INSERT_FIRST_EXECUTIONS
INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
SELECT new_runs.execution_id, new_runs.step_id, :pipeline, 1 FROM {rows:new_runs}

-- name: INSERT_FIRST_AVAILABILITIES
INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT new_runs.execution_id, :pipeline, {now} + :delay FROM {rows:new_runs}
