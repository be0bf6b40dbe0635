INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT b.execution_id, b.pipeline,
       coalesce(CAST(unixepoch('subsec') * 1000000 AS INTEGER) + b.due_in,
                (SELECT CASE WHEN min(a.due_at) < CAST(unixepoch('subsec') * 1000000 AS INTEGER) THEN min(a.due_at) - 1 END
                   FROM ductwork_availabilities a WHERE a.pipeline = b.pipeline),
                CAST(unixepoch('subsec') * 1000000 AS INTEGER))
  FROM (SELECT c0 AS execution_id, c1 AS pipeline, c2 AS due_in FROM ductwork_rows(?1)) AS b
