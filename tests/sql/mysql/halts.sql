WITH halted AS (
    SELECT id, step_id, halt_reason FROM ductwork_branches
     WHERE run_id = ? AND halt_reason IS NOT NULL)
SELECT b.halt_reason, s.node, s.via, CAST(octet_length(s.output) AS SIGNED) AS size,
       CASE WHEN octet_length(s.output) <= ? THEN s.output ELSE substr(s.output, 1, 100) END AS output,
       f.width, coalesce(e.error_message,
           (SELECT a.error_message FROM ductwork_transitions t
              JOIN ductwork_advancements a ON a.transition_id = t.id AND a.result = 'error'
             WHERE t.from_step_id = s.id ORDER BY a.id DESC LIMIT 1)) AS error_message, e.error_class
  FROM halted b
  JOIN ductwork_steps s ON s.id = b.step_id
  LEFT JOIN ductwork_fan_outs f ON f.branch_id = b.id AND f.node = s.node
  LEFT JOIN ductwork_executions e ON e.step_id = s.id AND s.output IS NULL AND e.attempt =
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
 ORDER BY b.id LIMIT ?
