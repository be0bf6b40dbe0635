INSERT INTO ductwork_executions
    (id, step_id, pipeline, attempt, retry_count, crash_count, process_id, claimed_at, lease_until)
SELECT b.id, b.step_id, b.pipeline, b.attempt, b.retry_count, b.crash_count, b.process_id,
       CASE WHEN b.process_id IS NULL THEN NULL ELSE CAST(unixepoch('subsec') * 1000000 AS INTEGER) END,
       CASE WHEN b.process_id IS NULL THEN NULL ELSE CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?1 END
  FROM (SELECT unhex(value->>0) AS id, unhex(value->>1) AS step_id, value->>2 AS pipeline, value->>3 AS attempt, value->>4 AS retry_count, value->>5 AS crash_count, unhex(value->>6) AS process_id FROM json_each(?2)) AS b
