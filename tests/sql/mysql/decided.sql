SELECT x.id
  FROM (SELECT s.id, s.created_at, s.answered_by FROM ductwork_steps s
         WHERE s.run_id = ? AND s.via = 'dampen'
         ORDER BY s.created_at, s.id LIMIT ?) x
 WHERE x.answered_by = ?
 ORDER BY x.created_at, x.id LIMIT 100
