WITH found AS (
        SELECT 'branch' AS entity, b.id, 'belongs to no run' AS detail
          FROM ductwork_branches b
          LEFT JOIN ductwork_runs r ON r.id = b.run_id
         WHERE b.fan_out_id IS NULL AND r.id IS NULL
        UNION ALL
        SELECT 'run', r.id, 'has ' || count(b.id) || ' branches that are its root'
          FROM ductwork_runs r
          LEFT JOIN ductwork_branches b ON b.run_id = r.id AND b.fan_out_id IS NULL
         GROUP BY r.id HAVING count(b.id) <> 1) SELECT * FROM found LIMIT ?
