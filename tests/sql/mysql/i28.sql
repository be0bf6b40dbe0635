WITH found AS (
        SELECT 'run' AS entity, r.id, 'shares its trigger key with another run' AS detail
          FROM ductwork_runs r
          JOIN (SELECT pipeline, trigger_key FROM ductwork_runs WHERE trigger_key IS NOT NULL
                 GROUP BY pipeline, trigger_key HAVING count(*) > 1) k
            ON k.pipeline = r.pipeline AND k.trigger_key = r.trigger_key) SELECT * FROM found LIMIT ?
