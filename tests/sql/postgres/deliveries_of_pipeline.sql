SELECT d.id, d.endpoint, d.run_id, d.event, d.pipeline, d.state, d.attempts, d.created_at, d.due_at, d.tried_at,
       d.status, d.error
  FROM ductwork_deliveries d
 WHERE d.pipeline = ANY (ARRAY[$1]) AND d.endpoint = $2 AND d.state = $3
   AND d.id >= $4 AND d.id < $5
 ORDER BY d.pipeline DESC, d.id DESC LIMIT $6
