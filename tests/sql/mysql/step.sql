SELECT s.id, s.branch_id, s.node, s.step, s.via, s.source_step_id, s.status, s.completed_at, s.answered_by,
 CASE WHEN octet_length(s.input) <= ? THEN s.input END AS input,
 CASE WHEN octet_length(s.output) <= ? THEN s.output END AS output,
 CAST(octet_length(s.input) AS SIGNED) AS input_bytes,
 CAST(octet_length(s.output) AS SIGNED) AS output_bytes,
 s.ordinal, b.ordinal AS element
  FROM ductwork_steps s
  JOIN ductwork_branches b ON b.id = s.branch_id
 WHERE s.id = ? AND s.run_id = ?
