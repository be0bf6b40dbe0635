INSERT INTO ductwork_executions
    (id, step_id, pipeline, attempt, retry_count, crash_count, process_id, claimed_at, lease_until)
SELECT held.attempt_id, held.attempt_step_id, ?1, held.attempt, held.retry_count,
       held.crash_count,
       CASE WHEN held.leased = 1 THEN ?2 END,
       CASE WHEN held.leased = 1 THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) END,
       CASE WHEN held.leased = 1 THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?3 END
  FROM batch_held(?4) AS held WHERE held.attempt_id IS NOT NULL
