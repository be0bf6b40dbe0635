SELECT r.id, r.pipeline, r.status, r.trigger_key, r.triggered_at,
       r.ended_at AS ended_at
  FROM ductwork_runs r FORCE INDEX (ductwork_runs_ended)
 WHERE r.status IN ('completed', 'halted', 'cancelled')
   AND r.ended_at >= ?
   AND (r.ended_at, r.id) > (?, ?)
   AND r.pruning_at IS NULL
 ORDER BY r.ended_at, r.id LIMIT ?
