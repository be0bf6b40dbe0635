SELECT e.id, e.step_id, s.branch_id, s.node, s.step, e.attempt, e.claimed_at, e.completed_at, e.result, e.error_class,
       e.error_message, coalesce(e.log, e.error_backtrace) AS log
  FROM unnest($1::uuid[], $2::bigint[]) AS b(id, after)
  JOIN ductwork_executions e ON e.step_id = ANY (ARRAY[b.id]) AND e.attempt > b.after
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[b.id])
 WHERE e.completed_at IS NOT NULL
   AND (e.log IS NOT NULL OR e.error_backtrace IS NOT NULL)
 ORDER BY s.created_at, s.id, e.attempt LIMIT $3
