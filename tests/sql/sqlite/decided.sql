SELECT s.id FROM ductwork_steps s
 WHERE s.run_id = ?1 AND s.via = 'dampen' AND s.answered_by = ?2
 ORDER BY s.created_at, s.id LIMIT 100
