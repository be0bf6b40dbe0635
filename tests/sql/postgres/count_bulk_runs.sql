SELECT count(*) AS n
  FROM (SELECT r.id FROM ductwork_runs r 
         WHERE r.status <> 'completed' AND r.status = ANY (ARRAY[$1]) AND r.pipeline = $2
           AND r.id > $3 AND r.id <= $4 AND r.triggered_at >= $5 AND r.pruning_at IS NULL
           AND NOT EXISTS (SELECT 1 FROM ductwork_runs n WHERE n.revived_from = ANY (ARRAY[r.id]))
         ORDER BY r.status, r.id LIMIT $6) x
