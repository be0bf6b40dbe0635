INSERT INTO ductwork_executions
    (id, step_id, pipeline, attempt, retry_count, crash_count, process_id, claimed_at, lease_until)
SELECT held.attempt_id, held.attempt_step_id, ?, held.attempt, held.retry_count,
       held.crash_count,
       CASE WHEN held.leased = 1 THEN ? END,
       CASE WHEN held.leased = 1 THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) END,
       CASE WHEN held.leased = 1 THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ? END
  FROM ductwork_held AS held WHERE held.attempt_id IS NOT NULL
