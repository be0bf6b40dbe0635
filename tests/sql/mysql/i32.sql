WITH found AS (
        SELECT 'run' AS entity, r.id,
               'is ' || r.status || ' and counts ' || r.dampened || ' waiting for a person; there are ' || coalesce(b.n, 0) AS detail
          FROM ductwork_runs r
          LEFT JOIN (SELECT run_id, count(*) AS n FROM ductwork_branches WHERE status = 'dampened'
                      GROUP BY run_id) b ON b.run_id = r.id
         WHERE (r.status IN ('in_progress', 'dampened') AND r.dampened <> coalesce(b.n, 0))
            OR (r.status = 'dampened' AND r.dampened = 0)
            OR (r.status = 'in_progress' AND r.dampened <> 0)) SELECT * FROM found LIMIT ?
