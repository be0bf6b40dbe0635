SELECT count(CASE WHEN ((process_id IS NULL) <> (claimed_at IS NULL) OR (process_id IS NULL) <> (lease_until IS NULL)) THEN 1 END) AS part_claimed,
       count(CASE WHEN ((completed_at IS NULL) <> (result IS NULL)) THEN 1 END) AS part_ended,
       count(CASE WHEN (attempt = 1 AND (retry_count <> 0 OR crash_count <> 0)) THEN 1 END) AS spent_at_first,
       count(CASE WHEN attempt <> 1 THEN 1 END) AS later,
       CAST(ductwork_fingerprint(step_id, NULL, 1) FILTER (WHERE attempt = 1) AS TEXT) AS done,
       CAST(ductwork_fingerprint(step_id, NULL, 1) FILTER (WHERE result = 'success') AS TEXT) AS succeeded,
       CAST(ductwork_fingerprint(step_id, NULL, 1) FILTER (WHERE completed_at IS NULL) AS TEXT) AS in_progress
  FROM ductwork_executions
