INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT b.execution_id, b.pipeline, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + b.delay
  FROM (SELECT unhex(value->>0) AS execution_id, value->>1 AS pipeline, value->>2 AS delay FROM json_each(?1)) AS b
