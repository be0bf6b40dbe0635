SELECT e.id, CAST(CASE WHEN e.result IS NULL THEN 1 ELSE 0 END AS bigint) AS is_open
  FROM ductwork_executions e
  JOIN ductwork_steps s ON s.id = e.step_id
  JOIN ductwork_branches br ON br.id = s.branch_id
  JOIN ductwork_runs r ON r.id = s.run_id
 WHERE e.id IN (SELECT c0 FROM ductwork_rows(?1))
