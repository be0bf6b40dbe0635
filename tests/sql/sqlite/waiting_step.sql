SELECT s.id, s.branch_id, s.node, s.created_at, d.answer_by, d.unanswered, CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now,
       CASE WHEN octet_length(s.input) <= ?1 THEN s.input
            WHEN ?1 > 0 THEN substr(s.input, 1, 1000) ELSE '' END AS input
  FROM ductwork_steps s
  LEFT JOIN ductwork_deadlines d ON d.branch_id = s.branch_id
 WHERE s.id = ?2 AND s.run_id = ?3 AND s.via = 'dampen' AND s.status = 'waiting'
