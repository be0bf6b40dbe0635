SELECT 'run' AS entity, revived_from AS id, 'was revived ' || count(*) || ' times' AS detail
  FROM ductwork_runs WHERE revived_from IS NOT NULL
 GROUP BY revived_from HAVING count(*) > 1
UNION ALL
SELECT 'run', o.id, 'was revived, but is ' || o.status
  FROM ductwork_runs r
  JOIN ductwork_runs o ON o.id = r.revived_from
 WHERE r.revived_from IS NOT NULL AND o.status <> 'halted'
 LIMIT $1
