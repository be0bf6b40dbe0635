INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at)
SELECT new_runs.id, ?1, ?2, new_runs.input, new_runs.trigger_key, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM batch_new_runs(?3) AS new_runs
