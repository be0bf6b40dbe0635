SELECT e.step_id, e.claimed_at
  FROM unnest($1::uuid[]) AS b(id)
  JOIN ductwork_executions e ON e.step_id = ANY (ARRAY[b.id]) AND e.attempt = 1
