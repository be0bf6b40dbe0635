SELECT e.step_id, e.attempt, e.claimed_at, e.completed_at, e.result
  FROM unnest($1::uuid[]) AS b(id)
  JOIN ductwork_executions e ON e.step_id = ANY (ARRAY[b.id]) AND e.attempt >
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = b.id) - $2
 ORDER BY e.step_id, e.attempt
