SELECT d.branch_id, d.answer_by, d.unanswered, br.step_id, br.run_id, CAST(octet_length(s.input) AS bigint) AS size
  FROM ductwork_deadlines d
  LEFT JOIN ductwork_branches br ON br.id = ANY (ARRAY[d.branch_id]) AND br.status = 'dampened'
  LEFT JOIN ductwork_steps s ON s.id = ANY (ARRAY[br.step_id])
 WHERE d.answer_by <= (extract(epoch from statement_timestamp()) * 1000000)::bigint AND d.unanswered IN ('halt', 'approve')
   AND d.answer_by >= $1 AND (d.answer_by, d.branch_id) > ($1, $2)
 ORDER BY d.answer_by, d.branch_id LIMIT $3
