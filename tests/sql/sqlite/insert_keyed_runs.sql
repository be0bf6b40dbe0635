INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at, trace_parent, trace_state,
                           baggage)
SELECT new_runs.id, ?1, ?2, new_runs.input, new_runs.trigger_key, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?3,
       ?4, ?5
  FROM batch_new_runs(?6) AS new_runs
 WHERE true
ON CONFLICT (pipeline, trigger_key) WHERE trigger_key IS NOT NULL DO NOTHING
RETURNING id
