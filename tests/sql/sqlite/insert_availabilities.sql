INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT b.execution_id, b.pipeline, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + b.delay
  FROM (SELECT c0 AS execution_id, c1 AS pipeline, c2 AS delay FROM ductwork_rows(?1)) AS b
