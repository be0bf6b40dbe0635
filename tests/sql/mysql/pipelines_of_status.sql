WITH RECURSIVE names (pipeline) AS (
    SELECT min(r.pipeline) FROM ductwork_runs r 
     WHERE r.status <> 'completed' AND r.status = ?
    UNION ALL
    SELECT (SELECT min(r.pipeline) FROM ductwork_runs r 
             WHERE r.status <> 'completed' AND r.status = ? AND r.pipeline > n.pipeline)
      FROM names n WHERE n.pipeline IS NOT NULL)
SELECT n.pipeline FROM names n WHERE n.pipeline IS NOT NULL
