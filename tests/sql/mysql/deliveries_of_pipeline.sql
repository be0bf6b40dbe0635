SELECT d.id, d.endpoint, d.run_id, d.event, d.pipeline, d.state, d.attempts, d.created_at, d.due_at, d.tried_at,
       d.status, d.error
  FROM ductwork_deliveries d
 WHERE d.pipeline = ? AND d.endpoint = ? AND d.state = ?
   AND d.id >= ? AND d.id < ?
 ORDER BY d.pipeline DESC, d.id DESC LIMIT ?
