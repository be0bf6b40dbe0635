SELECT 
       r.id, r.pipeline, r.definition, r.status, r.trigger_key, r.revived_from, r.trace_parent, r.trace_state, r.triggered_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now,
       r.ended_at AS ended_at
  FROM ductwork_runs r FORCE INDEX (ductwork_runs_ended)
 WHERE r.status IN ('completed', 'halted', 'cancelled')
   AND r.ended_at >= ?
   AND (r.ended_at, r.id) > (?, ?)
   AND r.pruning_at IS NULL
 ORDER BY r.ended_at, r.id LIMIT ?
