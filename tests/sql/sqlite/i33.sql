SELECT 'branch' AS entity, b.id, 'belongs to no run' AS detail
  FROM ductwork_branches b
  LEFT JOIN ductwork_runs r ON r.id = b.run_id
 WHERE b.fan_out_id IS NULL AND r.id IS NULL
UNION ALL
SELECT 'run', r.id, 'has a definition that is not stored'
  FROM ductwork_runs r
  LEFT JOIN ductwork_definitions d ON d.digest = r.definition
 WHERE d.digest IS NULL
 LIMIT ?1
