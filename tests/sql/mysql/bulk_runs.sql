SELECT x.id, x.pipeline,
       (SELECT n.id FROM ductwork_runs n WHERE n.revived_from = x.id) AS successor
  FROM (SELECT r.id, r.pipeline FROM ductwork_runs r FORCE INDEX (ductwork_runs_others)
         WHERE r.status <> 'completed' AND r.status = ? AND r.pipeline = ?
           AND r.id > ? AND r.id <= ? AND r.triggered_at >= ? AND r.pruning_at IS NULL
         ORDER BY r.status, r.id LIMIT ?) x
 ORDER BY x.id
