SELECT count(CASE WHEN ((process_id IS NULL) <> (claimed_at IS NULL) OR (process_id IS NULL) <> (lease_until IS NULL)) THEN 1 END) AS part_claimed,
       count(CASE WHEN ((completed_at IS NULL) <> (result IS NULL)) THEN 1 END) AS part_ended,
       count(CASE WHEN (attempt = 1 AND (retry_count <> 0 OR crash_count <> 0)) THEN 1 END) AS spent_at_first,
       count(CASE WHEN attempt <> 1 THEN 1 END) AS later,
       coalesce(sum(uuid_hash_extended(step_id, 0)) FILTER (WHERE attempt = 1), 0)::text AS done,
       coalesce(sum(uuid_hash_extended(step_id, 0)) FILTER (WHERE result = 'success'), 0)::text AS succeeded,
       coalesce(sum(uuid_hash_extended(step_id, 0)) FILTER (WHERE completed_at IS NULL), 0)::text AS in_progress
  FROM ductwork_executions
