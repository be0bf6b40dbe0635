SELECT count(*) AS n FROM (
    SELECT 1 FROM ductwork_runs r 
     WHERE r.status <> 'completed' AND r.status = $1 AND r.pipeline = $2
       AND r.id >= $3 LIMIT $4) x
