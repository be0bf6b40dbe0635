SELECT r.id, r.pipeline, r.definition, r.status, r.trigger_key, r.revived_from, r.trace_parent, r.trace_state, r.triggered_at,
       r.completed_at, r.halted_at, r.cancelled_at, (extract(epoch from statement_timestamp()) * 1000000)::bigint AS now
  FROM ductwork_runs r WHERE r.id = $1 AND r.pruning_at IS NULL
