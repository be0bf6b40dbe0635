SELECT count(CASE WHEN (status <> 'cancelled' AND (output IS NOT NULL) <> (status IN ('advancing', 'completed'))) THEN 1 END) AS odd_output,
       count(CASE WHEN source_step_id IS NOT NULL THEN 1 END) AS copies,
       count(CASE WHEN via IN ('on_halt', 'on_complete') THEN 1 END) AS hooks,
       count(CASE WHEN transition_id IS NULL AND source_step_id IS NULL
                          AND via NOT IN ('start', 'on_halt', 'on_complete', 'on_wait') THEN 1 END) AS unproduced,
       coalesce(sum(uuid_hash_extended(id, 0)) FILTER (WHERE source_step_id IS NULL AND via <> 'dampen'), 0)::text AS done,
       coalesce(sum(uuid_hash_extended(id, 0)) FILTER (WHERE source_step_id IS NULL AND via <> 'dampen'
            AND (status IN ('advancing', 'completed') OR (status = 'cancelled' AND output IS NOT NULL))), 0)::text AS succeeded,
       coalesce(sum(uuid_hash_extended(id, 0)) FILTER (WHERE status = 'in_progress'), 0)::text AS in_progress,
       coalesce(sum(uuid_hash_extended(id, uuid_hash_extended(branch_id, 0))) FILTER (WHERE status IN ('in_progress', 'advancing', 'waiting') AND via NOT IN ('on_halt', 'on_complete', 'on_wait')), 0)::text AS standing,
       coalesce(sum(uuid_hash_extended(id, 0)) FILTER (WHERE source_step_id IS NULL AND via NOT IN ('on_halt', 'on_complete', 'on_wait') AND status IN ('completed', 'failed')), 0)::text AS passed,
       coalesce(sum(uuid_hash_extended(transition_id, uuid_hash_extended(run_id, 0))) FILTER (WHERE via NOT IN ('on_halt', 'on_complete', 'on_wait')), 0)::text AS produced
  FROM ductwork_steps
