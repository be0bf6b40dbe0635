SELECT w.name AS endpoint, w.seen, d.attempts, d.status, substr(d.error, 1, 1000) AS error,
       CASE WHEN d.attempts = 0 THEN coalesce(d.tried_at, d.created_at) ELSE d.created_at END AS since
  FROM (SELECT h.name, h.seen,
               (SELECT x.id FROM ductwork_deliveries x
                 WHERE x.endpoint = h.name AND x.state = 'waiting'
                 ORDER BY x.endpoint, x.id LIMIT 1) AS oldest
          FROM ductwork_webhooks h) w
  JOIN ductwork_deliveries d ON d.id = w.oldest
 ORDER BY since, w.name LIMIT ?
