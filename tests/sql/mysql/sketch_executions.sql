SELECT count(CASE WHEN ((process_id IS NULL) <> (claimed_at IS NULL) OR (process_id IS NULL) <> (lease_until IS NULL)) THEN 1 END) AS part_claimed,
       count(CASE WHEN ((completed_at IS NULL) <> (result IS NULL)) THEN 1 END) AS part_ended,
       count(CASE WHEN (attempt = 1 AND (retry_count <> 0 OR crash_count <> 0)) THEN 1 END) AS spent_at_first,
       count(CASE WHEN attempt <> 1 THEN 1 END) AS later,
       CAST(coalesce(sum(CASE WHEN attempt = 1 THEN CAST(CONV(LEFT(SHA2(step_id, 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS done,
       CAST(coalesce(sum(CASE WHEN result = 'success' THEN CAST(CONV(LEFT(SHA2(step_id, 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS succeeded,
       CAST(coalesce(sum(CASE WHEN completed_at IS NULL THEN CAST(CONV(LEFT(SHA2(step_id, 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS in_progress
  FROM ductwork_executions
