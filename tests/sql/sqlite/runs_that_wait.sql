SELECT r.id, r.pipeline, r.status, r.trigger_key, r.triggered_at, CAST(NULL AS integer) AS ended_at
  FROM ductwork_runs r INDEXED BY ductwork_runs_others
 WHERE r.status <> 'completed' AND r.status = 'dampened' AND r.pipeline >= ?1
   AND (r.pipeline, r.id) > (?1, ?2) AND r.pruning_at IS NULL
 ORDER BY r.status, r.pipeline, r.id LIMIT ?3
