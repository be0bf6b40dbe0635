WITH RECURSIVE names (pipeline) AS (
    SELECT min(r.pipeline) FROM ductwork_runs r 
     WHERE r.status = 'completed'
    UNION ALL
    SELECT (SELECT min(r.pipeline) FROM ductwork_runs r 
             WHERE r.status = 'completed' AND r.pipeline > n.pipeline)
      FROM names n WHERE n.pipeline IS NOT NULL)
SELECT n.pipeline AS name FROM names n WHERE n.pipeline IS NOT NULL
