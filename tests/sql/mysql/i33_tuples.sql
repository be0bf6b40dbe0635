WITH found AS (
        SELECT 'run' AS entity, t.run_id AS id, 'is gone, but has ' || count(*) || ' values in its context' AS detail
          FROM ductwork_tuples t
          LEFT JOIN ductwork_runs r ON r.id = t.run_id
         WHERE r.id IS NULL GROUP BY t.run_id) SELECT * FROM found LIMIT ?
