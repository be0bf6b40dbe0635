SELECT count(*) FILTER (WHERE ((process_id IS NULL) <> (claimed_at IS NULL) OR (process_id IS NULL) <> (lease_until IS NULL))) AS part_claimed,
       count(*) FILTER (WHERE ((completed_at IS NULL) <> (result IS NULL))) AS part_ended,
       count(*) FILTER (WHERE (attempt = 1 AND (retry_count <> 0 OR crash_count <> 0))) AS spent_at_first,
       count(*) FILTER (WHERE attempt <> 1) AS later,
       coalesce(sum(uuid_hash_extended(step_id, 0)) FILTER (WHERE attempt = 1), 0)::text AS done,
       coalesce(sum(uuid_hash_extended(step_id, 0)) FILTER (WHERE result = 'success'), 0)::text AS succeeded,
       coalesce(sum(uuid_hash_extended(step_id, 0)) FILTER (WHERE completed_at IS NULL), 0)::text AS in_progress
  FROM ductwork_executions
