SELECT s.id, s.branch_id, s.node, s.input, s.created_at, d.answer_by, d.unanswered, (extract(epoch from statement_timestamp()) * 1000000)::bigint AS now
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[br.step_id]) AND s.status = 'waiting'
  LEFT JOIN ductwork_deadlines d ON d.branch_id = ANY (ARRAY[br.id])
 WHERE br.run_id = $1 AND br.status = 'dampened'
 ORDER BY s.created_at, s.id
