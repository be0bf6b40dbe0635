WITH found AS (
        SELECT 'process' AS entity, p.id,
               CASE WHEN z.pipeline IS NULL THEN 'is paused, but its pipeline is not'
                    ELSE 'may claim, but its pipeline is paused' END AS detail
          FROM ductwork_processes p
          LEFT JOIN ductwork_pauses z ON z.pipeline = p.pipeline
         WHERE p.paused <> CASE WHEN z.pipeline IS NULL THEN 0 ELSE 1 END) SELECT * FROM found LIMIT ?
