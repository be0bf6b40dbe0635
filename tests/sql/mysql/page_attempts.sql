SELECT e.id, e.attempt, e.process_id, e.claimed_at, e.completed_at, e.result, e.error_class,
       substr(e.error_message, 1, 2000) AS error_message, a.due_at,
       CAST(CASE WHEN coalesce(e.log, e.error_backtrace) IS NULL THEN 0 ELSE 1 END AS SIGNED) AS has_log
  FROM ductwork_executions e
  LEFT JOIN ductwork_availabilities a ON a.execution_id = e.id
 WHERE e.step_id = ? ORDER BY e.attempt DESC LIMIT ?
