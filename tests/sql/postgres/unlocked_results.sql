SELECT e.id FROM ductwork_executions e
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[e.step_id])
  JOIN ductwork_branches br ON br.id = ANY (ARRAY[s.branch_id])
 WHERE e.id = ANY ($1::uuid[]) FOR NO KEY UPDATE SKIP LOCKED
