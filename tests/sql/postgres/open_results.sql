SELECT e.id, CAST(CASE WHEN e.result IS NULL THEN 1 ELSE 0 END AS bigint) AS is_open
  FROM ductwork_executions e
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[e.step_id])
  JOIN ductwork_branches br ON br.id = ANY (ARRAY[s.branch_id])
  JOIN ductwork_runs r ON r.id = ANY (ARRAY[s.run_id])
 WHERE e.id = ANY ($1::uuid[])
