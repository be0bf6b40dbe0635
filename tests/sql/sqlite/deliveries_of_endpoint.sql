SELECT d.id, d.endpoint, d.run_id, d.event, d.pipeline, d.state, d.attempts, d.created_at, d.due_at, d.tried_at,
       d.status, d.error
  FROM ductwork_deliveries d
 WHERE d.endpoint = ?1 AND d.state = ?2 AND d.id >= ?3 AND d.id < ?4
 ORDER BY d.endpoint DESC, d.id DESC LIMIT ?5
