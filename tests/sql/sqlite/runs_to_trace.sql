SELECT 
       r.id, r.pipeline, r.definition, r.status, r.trigger_key, r.revived_from, r.trace_parent, r.trace_state, r.triggered_at,
       CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now,
       coalesce(r.completed_at, r.halted_at, r.cancelled_at) AS ended_at
  FROM ductwork_runs r INDEXED BY ductwork_runs_ended
 WHERE r.status IN ('completed', 'halted', 'cancelled')
   AND coalesce(r.completed_at, r.halted_at, r.cancelled_at) >= ?1
   AND (coalesce(r.completed_at, r.halted_at, r.cancelled_at), r.id) > (?1, ?2)
   AND r.pruning_at IS NULL
 ORDER BY coalesce(r.completed_at, r.halted_at, r.cancelled_at), r.id LIMIT ?3
