SELECT e.id, e.step_id, e.pipeline, e.attempt, e.retry_count, e.crash_count,
       s.step, s.branch_id, s.run_id, s.via, r.definition
  FROM unnest($1::uuid[]) AS b(id)
  JOIN ductwork_executions e ON e.id = ANY (ARRAY[b.id])
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[e.step_id])
  JOIN ductwork_runs r ON r.id = ANY (ARRAY[s.run_id])
 ORDER BY e.id
