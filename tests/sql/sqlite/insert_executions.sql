INSERT INTO ductwork_executions
    (id, step_id, pipeline, attempt, retry_count, crash_count, process_id, claimed_at, lease_until)
SELECT b.id, b.step_id, b.pipeline, b.attempt, b.retry_count, b.crash_count, b.process_id,
       CASE WHEN b.process_id IS NULL THEN NULL ELSE CAST(unixepoch('subsec') * 1000000 AS INTEGER) END,
       CASE WHEN b.process_id IS NULL THEN NULL ELSE CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?1 END
  FROM (SELECT c0 AS id, c1 AS step_id, c2 AS pipeline, c3 AS attempt, c4 AS retry_count, c5 AS crash_count, c6 AS process_id FROM ductwork_rows(?2)) AS b
