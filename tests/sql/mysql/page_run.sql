SELECT r.id, r.pipeline, r.definition, r.status, r.trigger_key, r.revived_from, r.trace_parent, r.trace_state, r.triggered_at,
       r.completed_at, r.halted_at, r.cancelled_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now
  FROM ductwork_runs r WHERE r.id = ? AND r.pruning_at IS NULL
