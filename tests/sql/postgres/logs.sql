SELECT e.id, s.node, s.step, e.attempt, e.claimed_at, e.completed_at, e.result, e.error_class,
       e.error_message, coalesce(e.log, e.error_backtrace) AS log
  FROM unnest($1::uuid[]) AS b(id)
  JOIN ductwork_executions e ON e.step_id = b.id
  JOIN ductwork_steps s ON s.id = b.id
 WHERE e.completed_at IS NOT NULL
   AND (e.log IS NOT NULL OR e.error_backtrace IS NOT NULL)
 ORDER BY e.step_id, e.attempt
