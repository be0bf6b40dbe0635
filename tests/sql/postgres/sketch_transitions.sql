SELECT count(CASE WHEN ((completed_at IS NOT NULL) <> (via IS NOT NULL) OR (completed_at IS NOT NULL) <> (produced IS NOT NULL)) THEN 1 END) AS part_crossed,
       count(CASE WHEN completed_at IS NULL THEN 1 END) AS under_way,
       count(CASE WHEN retry_count <> 0 OR crash_count <> 0 THEN 1 END) AS spent,
       coalesce(sum(uuid_hash_extended(from_step_id, 0)) FILTER (WHERE completed_at IS NOT NULL), 0)::text AS passed,
       coalesce(sum(uuid_hash_extended(id, uuid_hash_extended(run_id, 0))::numeric * produced) FILTER (WHERE produced IS NOT NULL), 0)::text AS produced,
       coalesce(sum(uuid_hash_extended(id, uuid_hash_extended(branch_id, 0))) FILTER (WHERE completed_at IS NOT NULL), 0)::text AS crossed
  FROM ductwork_transitions
