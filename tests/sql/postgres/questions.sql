SELECT s.id, s.node, s.created_at, d.answer_by, d.unanswered
  FROM ductwork_steps s
  LEFT JOIN ductwork_deadlines d ON d.branch_id = ANY (ARRAY[s.branch_id])
 WHERE s.run_id = $1 AND s.via = 'dampen' AND s.status = 'waiting'
 ORDER BY s.created_at, s.id LIMIT 100
