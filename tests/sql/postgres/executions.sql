SELECT e.id, e.step_id, e.attempt, e.retry_count, e.crash_count, e.process_id, e.claimed_at,
       e.completed_at, e.result, e.error_class, e.error_message, a.due_at,
       CASE WHEN $1 = 1 THEN e.error_backtrace END AS error_backtrace
  FROM unnest($2::uuid[]) AS b(id)
  JOIN ductwork_executions e ON e.step_id = ANY (ARRAY[b.id]) AND e.attempt >
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = b.id) - $3
  LEFT JOIN ductwork_availabilities a ON a.execution_id = ANY (ARRAY[e.id])
 ORDER BY e.step_id, e.attempt
