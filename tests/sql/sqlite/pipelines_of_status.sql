WITH RECURSIVE names (pipeline) AS (
    SELECT min(r.pipeline) FROM ductwork_runs r INDEXED BY ductwork_runs_others
     WHERE r.status <> 'completed' AND r.status = ?1
    UNION ALL
    SELECT (SELECT min(r.pipeline) FROM ductwork_runs r INDEXED BY ductwork_runs_others
             WHERE r.status <> 'completed' AND r.status = ?1 AND r.pipeline > n.pipeline)
      FROM names n WHERE n.pipeline IS NOT NULL)
SELECT n.pipeline AS name FROM names n WHERE n.pipeline IS NOT NULL
