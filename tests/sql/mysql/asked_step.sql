SELECT s.id, s.branch_id, s.node, s.created_at, d.answer_by, d.unanswered, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now,
       CAST(octet_length(s.input) AS SIGNED) AS size
  FROM ductwork_steps s
  LEFT JOIN ductwork_deadlines d ON d.branch_id = s.branch_id
 WHERE s.run_id = ? AND s.via = 'dampen' AND s.status = 'waiting' AND s.id = ?
