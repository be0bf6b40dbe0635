SELECT x.id
  FROM (SELECT s.id, s.created_at, s.answered_by FROM ductwork_steps s
         WHERE s.run_id = $1 AND s.via = 'dampen'
         ORDER BY s.created_at, s.id LIMIT $2) x
 WHERE x.answered_by = $3
 ORDER BY x.created_at, x.id LIMIT 100
