SELECT s.id, s.branch_id, s.node, s.created_at, d.answer_by, d.unanswered, CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now,
       CAST(octet_length(s.input) AS bigint) AS size
  FROM ductwork_steps s
  LEFT JOIN ductwork_deadlines d ON d.branch_id = s.branch_id
 WHERE s.run_id = ?1 AND s.via = 'dampen' AND s.status = 'waiting'
   AND s.created_at <= ?2 AND s.created_at >= ?3
   AND (s.created_at, s.id) > (?3, ?4)
 ORDER BY s.created_at, s.id LIMIT ?5
