SELECT s.id, s.branch_id, s.node, s.step, s.via, s.source_step_id, s.status, s.created_at,
       s.completed_at, s.answered_by, br.fan_out_id, br.ordinal AS place,
       e.attempt, e.process_id, e.claimed_at, e.result, e.error_class,
       substr(e.error_message, 1, 400) AS error_message, a.due_at, CAST(octet_length(s.input) AS SIGNED) AS input_size,
       CASE WHEN octet_length(s.input) <= ? THEN s.input ELSE substr(s.input, 1, 1000) END AS input,
       CAST(octet_length(s.output) AS SIGNED) AS output_size,
       CASE WHEN octet_length(s.output) <= ? THEN s.output ELSE substr(s.output, 1, 1000) END AS output
  FROM ductwork_steps s
  JOIN ductwork_branches br ON br.id = s.branch_id
  LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.attempt =
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = s.id)
  LEFT JOIN ductwork_availabilities a ON a.execution_id = e.id
 WHERE s.id = ? AND s.run_id = ?
