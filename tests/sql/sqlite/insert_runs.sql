INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at, trace_parent)
SELECT new_runs.id, ?1, ?2, new_runs.input, new_runs.trigger_key, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?3
  FROM batch_new_runs(?4) AS new_runs
