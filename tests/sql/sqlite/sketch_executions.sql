SELECT count(*) FILTER (WHERE ((process_id IS NULL) <> (claimed_at IS NULL) OR (process_id IS NULL) <> (lease_until IS NULL))) AS part_claimed,
       count(*) FILTER (WHERE ((completed_at IS NULL) <> (result IS NULL))) AS part_ended,
       count(*) FILTER (WHERE (attempt = 1 AND (retry_count <> 0 OR crash_count <> 0))) AS spent_at_first,
       count(*) FILTER (WHERE attempt <> 1) AS later,
       CAST(ductwork_fingerprint(step_id, NULL, 1) FILTER (WHERE attempt = 1) AS TEXT) AS done,
       CAST(ductwork_fingerprint(step_id, NULL, 1) FILTER (WHERE result = 'success') AS TEXT) AS succeeded,
       CAST(ductwork_fingerprint(step_id, NULL, 1) FILTER (WHERE completed_at IS NULL) AS TEXT) AS in_progress
  FROM ductwork_executions
