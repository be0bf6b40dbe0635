SELECT s.id FROM ductwork_steps s
 WHERE s.run_id = ? AND s.via = 'dampen' AND s.answered_by = ?
 ORDER BY s.created_at, s.id LIMIT 100
