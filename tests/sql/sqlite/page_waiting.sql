SELECT s.run_id, r.pipeline, r.definition, s.id, s.node, s.created_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now,
       CAST(octet_length(s.input) AS bigint) AS input_size, substr(s.input, 1, 1000) AS input,
       d.answer_by, d.unanswered, br.ordinal AS place, f.width, f.via
  FROM ductwork_steps s INDEXED BY ductwork_steps_asked
  JOIN ductwork_runs r ON r.id = s.run_id
  JOIN ductwork_branches br ON br.id = s.branch_id
  LEFT JOIN ductwork_fan_outs f ON f.id = br.fan_out_id
  LEFT JOIN ductwork_deadlines d ON d.branch_id = s.branch_id
 WHERE s.run_id IN (SELECT c0 FROM ductwork_rows(?1)) AND s.via = 'dampen' AND s.status = 'waiting'
   AND (s.run_id > ?2 OR s.run_id = ?2 AND s.id > ?3)
 ORDER BY s.run_id, s.id LIMIT ?4
