SELECT s.id, s.branch_id, s.node, s.input, s.created_at, d.answer_by, d.unanswered, CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now
  FROM ductwork_steps s
  LEFT JOIN ductwork_deadlines d ON d.branch_id = s.branch_id
 WHERE s.run_id = ?1 AND s.via = 'dampen' AND s.status = 'waiting'
 ORDER BY s.created_at, s.id
