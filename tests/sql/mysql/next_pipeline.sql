SELECT r.pipeline AS name FROM ductwork_runs r FORCE INDEX (ductwork_runs_others)
 WHERE r.status = ? AND r.pipeline > ? ORDER BY r.status, r.pipeline LIMIT 1
