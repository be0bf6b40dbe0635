INSERT INTO ductwork_deliveries (id, endpoint, run_id, event, pipeline, body, state, attempts, created_at, due_at)
SELECT b.id, b.endpoint, b.run_id, b.event, b.pipeline, b.body, 'waiting', 0, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS endpoint, c2 AS run_id, c3 AS event, c4 AS pipeline, c5 AS body FROM ductwork_rows(?1)) AS b
  JOIN ductwork_runs r ON r.id = b.run_id
 WHERE r.pruning_at IS NULL 
ON CONFLICT (run_id, endpoint, event) DO NOTHING
