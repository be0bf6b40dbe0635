SELECT br.run_id, r.pipeline, r.definition, s.id, s.node, s.created_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now,
       CAST(octet_length(s.input) AS bigint) AS input_size, substr(s.input, 1, 1000) AS input,
       d.answer_by, d.unanswered
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
  JOIN ductwork_runs r ON r.id = b.id
  JOIN ductwork_branches br ON br.run_id = b.id AND br.status = 'dampened'
  JOIN ductwork_steps s ON s.id = br.step_id AND s.status = 'waiting'
  LEFT JOIN ductwork_deadlines d ON d.branch_id = br.id
 ORDER BY s.created_at, s.id LIMIT ?2
