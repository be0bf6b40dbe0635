SELECT e.id, e.step_id, s.run_id, s.branch_id, s.node, s.step, e.attempt, e.claimed_at, e.completed_at,
       e.result, e.error_class, e.error_message, coalesce(e.log, e.error_backtrace) AS log
  FROM ductwork_executions e
  JOIN ductwork_steps s ON s.id = e.step_id
  JOIN ductwork_runs r ON r.id = s.run_id
 WHERE e.id = ? AND r.pruning_at IS NULL
