SELECT s.id, s.branch_id, s.node, s.input, s.created_at
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[br.step_id]) AND s.status = 'waiting'
 WHERE br.run_id = $1 AND br.status = 'dampened'
 ORDER BY s.created_at, s.id
