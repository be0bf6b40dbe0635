UPDATE ductwork_deliveries
   SET attempts = b.attempts + 1, due_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + b.pause, state = b.state, tried_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
       status = b.status, error = b.error
  FROM (SELECT c0 AS id, c1 AS attempts, c2 AS pause, c3 AS state, c4 AS status, c5 AS error FROM ductwork_rows(?1)) AS b
 WHERE ductwork_deliveries.id = b.id AND ductwork_deliveries.due_at IS NOT NULL
   AND ductwork_deliveries.attempts = b.attempts
RETURNING ductwork_deliveries.id AS id
