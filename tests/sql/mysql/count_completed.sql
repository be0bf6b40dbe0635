SELECT count(*) AS n FROM (
    SELECT 1 FROM ductwork_runs r FORCE INDEX (ductwork_runs_others)
     WHERE r.status = 'completed' AND r.pipeline = ? AND r.id >= ? LIMIT ?) x
