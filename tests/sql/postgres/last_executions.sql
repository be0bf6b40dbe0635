SELECT e.step_id, e.result, e.error_class, e.retry_count
  FROM unnest($1::uuid[]) AS b(id)
  JOIN ductwork_executions e ON e.step_id = ANY (ARRAY[b.id])
       AND e.attempt = (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = b.id)
