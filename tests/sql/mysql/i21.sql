WITH found AS (
        SELECT 'run' AS entity, revived_from AS id, 'was revived ' || count(*) || ' times' AS detail
          FROM ductwork_runs WHERE revived_from IS NOT NULL
         GROUP BY revived_from HAVING count(*) > 1
        UNION ALL
        SELECT 'run', r.id, 'was made from a run that ' || CASE WHEN o.id IS NULL THEN 'is gone' ELSE 'is ' || o.status END
          FROM ductwork_runs r
          LEFT JOIN ductwork_runs o ON o.id = r.revived_from
         WHERE r.revived_from IS NOT NULL AND (o.id IS NULL OR o.status <> 'halted')) SELECT * FROM found LIMIT ?
