-- Starts runs with keys: one statement after another, in one transaction.

-- name: KEEP_KEYED_RUNS
-- absent: INSERT_KEYED_RUNS.1: it names SQLite's index; MySQL's contains all runs, and holds those without a key apart.
-- The unique index lets the first trigger of a key win; a second one writes nothing (T1). An existing run counts
-- as a written one, so the new runs are read by their ids, which are ours alone.
INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at, trace_parent, trace_state,
                           baggage)
SELECT new_runs.id, :pipeline, :definition, new_runs.input, new_runs.trigger_key, {now}, :trace_parent,
       :trace_state, :baggage
  FROM {rows:new_runs}
{keep:ductwork_runs;id}

-- name: MADE_RUNS
SELECT r.id FROM {rows:new_runs} STRAIGHT_JOIN ductwork_runs r ON r.id = new_runs.id
