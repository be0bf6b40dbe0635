SELECT s.id, s.branch_id, s.node, s.step, s.via, s.source_step_id, s.status,
       s.input, s.output, s.completed_at, s.answered_by
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.branch_id = br.id
 WHERE br.run_id = $1 AND s.status = 'failed' AND s.via <> 'dampen' ORDER BY s.created_at, s.id LIMIT $2
