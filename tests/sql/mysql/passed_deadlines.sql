SELECT d.branch_id, d.answer_by, d.unanswered, br.step_id, br.run_id, CAST(octet_length(s.input) AS SIGNED) AS size
  FROM ductwork_deadlines d
  LEFT JOIN ductwork_branches br ON br.id = d.branch_id AND br.status = 'dampened'
  LEFT JOIN ductwork_steps s ON s.id = br.step_id
 WHERE d.answer_by <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND d.unanswered IN ('halt', 'approve')
   AND d.answer_by >= ? AND (d.answer_by, d.branch_id) > (?, ?)
 ORDER BY d.answer_by, d.branch_id LIMIT ?
