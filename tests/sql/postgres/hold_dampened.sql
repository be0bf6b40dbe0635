SELECT br.step_id FROM unnest($1::uuid[], $2::uuid[]) AS b(branch_id, step_id)
  JOIN ductwork_branches br ON br.id = ANY (ARRAY[b.branch_id]) AND br.step_id = b.step_id
 WHERE br.status = 'dampened'
 ORDER BY br.id FOR NO KEY UPDATE
