INSERT INTO ductwork_runs (id, pipeline, definition, input, revived_from, triggered_at, trace_parent,
                           trace_state, baggage)
SELECT ?, r.pipeline, coalesce(?, r.definition), r.input, r.id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), r.trace_parent,
       r.trace_state, r.baggage
  FROM ductwork_runs r WHERE r.id = ?
