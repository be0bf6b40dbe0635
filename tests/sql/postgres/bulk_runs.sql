SELECT x.id, x.pipeline,
       (SELECT n.id FROM ductwork_runs n WHERE n.revived_from = ANY (ARRAY[x.id])) AS successor
  FROM (SELECT r.id, r.pipeline FROM ductwork_runs r 
         WHERE r.status <> 'completed' AND r.status = ANY (ARRAY[$1]) AND r.pipeline = $2
           AND r.id > $3 AND r.id <= $4 AND r.triggered_at >= $5 AND r.pruning_at IS NULL
         ORDER BY r.status, r.id LIMIT $6) x
 ORDER BY x.id
