INSERT INTO ductwork_runs (id, pipeline, definition, input, revived_from, triggered_at, trace_parent,
                           trace_state, baggage)
SELECT $1, r.pipeline, coalesce($2, r.definition), r.input, r.id, (extract(epoch from statement_timestamp()) * 1000000)::bigint, r.trace_parent,
       r.trace_state, r.baggage
  FROM ductwork_runs r WHERE r.id = $3
