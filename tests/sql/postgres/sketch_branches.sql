SELECT coalesce(sum(uuid_hash_extended(run_id, 0)) FILTER (WHERE fan_out_id IS NULL), 0)::text AS roots,
       coalesce(sum(uuid_hash_extended(step_id, uuid_hash_extended(id, 0))) FILTER (WHERE status IN ('in_progress', 'advancing', 'dampened')), 0)::text AS standing
  FROM ductwork_branches
