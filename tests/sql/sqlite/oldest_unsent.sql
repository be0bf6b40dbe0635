SELECT substr(d.endpoint, 1, 1000) AS endpoint, d.attempts, d.status, substr(d.error, 1, 1000) AS error,
       CASE WHEN d.attempts = 0 THEN coalesce(d.tried_at, d.created_at) ELSE d.created_at END AS since
  FROM ductwork_deliveries d WHERE d.state = ?1 ORDER BY d.state, d.id LIMIT 1
