SELECT e.id, e.step_id, e.attempt, e.retry_count, e.crash_count, e.process_id, e.claimed_at,
       e.completed_at, e.result, e.error_class, e.error_message, a.due_at,
       CASE WHEN $1 = 1 THEN e.error_backtrace END AS error_backtrace
  FROM unnest($2::uuid[]) AS b(id)
  JOIN ductwork_executions e ON e.step_id = b.id
  LEFT JOIN ductwork_availabilities a ON a.execution_id = e.id
 ORDER BY e.step_id, e.attempt
