INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at, trace_parent, trace_state,
                           baggage)
SELECT new_runs.id, ?, ?, new_runs.input, new_runs.trigger_key, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ?,
       ?, ?
  FROM ductwork_new_runs AS new_runs
ON DUPLICATE KEY UPDATE id = ductwork_runs.id
;
SELECT r.id FROM ductwork_new_runs AS new_runs STRAIGHT_JOIN ductwork_runs r ON r.id = new_runs.id
;
