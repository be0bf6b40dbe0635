SELECT count(*) AS n FROM (
    SELECT 1 FROM ductwork_runs r 
     WHERE r.status = 'completed' AND r.pipeline = $1 AND r.id >= $2 LIMIT $3) x
