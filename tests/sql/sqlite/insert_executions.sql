INSERT INTO ductwork_executions
    (id, step_id, pipeline, attempt, retry_count, crash_count)
SELECT b.id, b.step_id, b.pipeline, b.attempt, b.retry_count, b.crash_count
  FROM (SELECT c0 AS id, c1 AS step_id, c2 AS pipeline, c3 AS attempt, c4 AS retry_count, c5 AS crash_count FROM ductwork_rows(?1)) AS b
