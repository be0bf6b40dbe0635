SELECT d.id, d.endpoint, d.run_id, d.event, d.pipeline, d.state, d.attempts, d.created_at, d.due_at, d.tried_at,
       d.status, d.error
  FROM ductwork_deliveries d WHERE d.id >= ? AND d.id < ? ORDER BY d.id DESC LIMIT ?
