INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
WITH b AS MATERIALIZED (
    SELECT * FROM (SELECT c0 AS execution_id, c1 AS pipeline, c2 AS due_in FROM ductwork_rows(?1)) AS b),
heads AS MATERIALIZED (
    SELECT b.pipeline,
           (SELECT min(a.due_at) FROM ductwork_availabilities a
             WHERE a.pipeline = b.pipeline) AS due_at
      FROM b WHERE b.due_in IS NULL GROUP BY b.pipeline)
SELECT b.execution_id, b.pipeline,
       coalesce(CAST(unixepoch('subsec') * 1000000 AS INTEGER) + b.due_in,
                CASE WHEN heads.due_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) THEN heads.due_at - 1 END,
                CAST(unixepoch('subsec') * 1000000 AS INTEGER))
  FROM b LEFT JOIN heads ON heads.pipeline = b.pipeline
