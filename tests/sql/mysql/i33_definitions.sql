WITH found AS (
        SELECT 'run' AS entity, r.id, 'has a definition that is not stored' AS detail
          FROM ductwork_runs r
          LEFT JOIN ductwork_definitions d ON d.digest = r.definition
         WHERE d.digest IS NULL) SELECT * FROM found LIMIT ?
