SELECT r.id, r.pipeline, r.status, r.trigger_key, r.triggered_at, CAST(NULL AS SIGNED) AS ended_at
  FROM ductwork_runs r FORCE INDEX (ductwork_runs_others)
 WHERE r.status <> 'completed' AND r.status = 'dampened' AND r.pipeline >= ?
   AND (r.pipeline, r.id) > (?, ?) AND r.pruning_at IS NULL
 ORDER BY r.status, r.pipeline, r.id LIMIT ?
