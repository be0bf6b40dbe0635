SELECT count(*) AS n
  FROM (SELECT r.id FROM ductwork_runs r FORCE INDEX (ductwork_runs_others)
         WHERE r.status <> 'completed' AND r.status = ? AND r.pipeline = ?
           AND r.id > ? AND r.id <= ? AND r.triggered_at >= ? AND r.pruning_at IS NULL
           AND NOT EXISTS (SELECT 1 FROM ductwork_runs n WHERE n.revived_from = r.id)
         ORDER BY r.status, r.id LIMIT ?) x
