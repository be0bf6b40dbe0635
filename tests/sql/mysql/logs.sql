SELECT e.id, e.step_id, s.branch_id, s.node, s.step, e.attempt, e.claimed_at, e.completed_at, e.result, e.error_class,
       e.error_message, coalesce(e.log, e.error_backtrace) AS log
  FROM (SELECT UNHEX(j.c0) AS id, j.c1 AS after FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 bigint PATH '$[1]')) AS j) AS b
  JOIN ductwork_executions e ON e.step_id = b.id AND e.attempt > b.after
  JOIN ductwork_steps s ON s.id = b.id
 WHERE e.completed_at IS NOT NULL
   AND (e.log IS NOT NULL OR e.error_backtrace IS NOT NULL)
 ORDER BY s.created_at, s.id, e.attempt LIMIT ?
