SELECT b.id, b.ordinal, b.status, b.halt_reason, s.id AS step_id, s.node, s.status AS step_status,
       e.attempt, e.process_id, e.result, e.error_message
  FROM (SELECT x.* FROM ductwork_branches x 
         WHERE x.run_id = $1 AND x.halt_reason IS NOT NULL AND x.fan_out_id = $2
         ORDER BY x.id LIMIT $3) b
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[b.step_id])
  LEFT JOIN ductwork_executions e ON e.step_id = ANY (ARRAY[s.id]) AND e.attempt =
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
 ORDER BY b.ordinal
