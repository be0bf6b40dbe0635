SELECT b.halt_reason, s.id AS step_id, s.node, s.via, CAST(octet_length(s.output) AS SIGNED) AS size,
       CASE WHEN octet_length(s.output) <= ? THEN s.output ELSE substr(s.output, 1, 100) END AS output,
       f.width, coalesce(e.error_message,
           (SELECT a.error_message FROM ductwork_transitions t
              JOIN ductwork_advancements a ON a.transition_id = t.id AND a.result = 'error'
             WHERE t.from_step_id = s.id ORDER BY a.id DESC LIMIT 1)) AS error_message, e.error_class
  FROM (SELECT x.id FROM ductwork_branches x FORCE INDEX (ductwork_branches_reasons)
         WHERE x.run_id = ? AND x.halt_reason IS NOT NULL
         ORDER BY x.id LIMIT ?) halted
  JOIN ductwork_branches b ON b.id = halted.id
  JOIN ductwork_steps s ON s.id = b.step_id
  LEFT JOIN ductwork_fan_outs f ON f.branch_id = b.id AND f.node = s.node
  LEFT JOIN ductwork_executions e ON e.step_id = s.id AND s.output IS NULL AND e.attempt =
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
 ORDER BY b.id
