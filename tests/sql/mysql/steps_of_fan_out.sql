SELECT s.id, s.branch_id, s.node, s.step, s.via, s.source_step_id, s.status, s.completed_at, s.answered_by,
 CASE WHEN octet_length(s.input) <= ? THEN s.input END AS input,
 CASE WHEN octet_length(s.output) <= ? THEN s.output END AS output,
 CAST(octet_length(s.input) AS SIGNED) AS input_bytes,
 CAST(octet_length(s.output) AS SIGNED) AS output_bytes,
 s.ordinal, b.ordinal AS element
  FROM ductwork_branches b
  JOIN ductwork_steps s ON s.branch_id = b.id
 WHERE b.fan_out_id = ? AND b.ordinal >= ?
   AND (b.ordinal > ? OR s.ordinal > ?)
 ORDER BY b.ordinal, s.ordinal LIMIT ?
