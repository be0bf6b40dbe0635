SELECT count(CASE WHEN (status <> 'cancelled' AND (output IS NOT NULL) <> (status IN ('advancing', 'completed'))) THEN 1 END) AS odd_output,
       count(CASE WHEN source_step_id IS NOT NULL THEN 1 END) AS copies,
       count(CASE WHEN via IN ('on_halt', 'on_complete') THEN 1 END) AS hooks,
       count(CASE WHEN transition_id IS NULL AND source_step_id IS NULL
                          AND via NOT IN ('start', 'on_halt', 'on_complete', 'on_wait') THEN 1 END) AS unproduced,
       CAST(ductwork_fingerprint(id, NULL, 1) FILTER (WHERE source_step_id IS NULL AND via <> 'dampen') AS TEXT) AS done,
       CAST(ductwork_fingerprint(id, NULL, 1) FILTER (WHERE source_step_id IS NULL AND via <> 'dampen'
            AND (status IN ('advancing', 'completed') OR (status = 'cancelled' AND output IS NOT NULL))) AS TEXT) AS succeeded,
       CAST(ductwork_fingerprint(id, NULL, 1) FILTER (WHERE status = 'in_progress') AS TEXT) AS in_progress,
       CAST(ductwork_fingerprint(id, branch_id, 1) FILTER (WHERE status IN ('in_progress', 'advancing', 'waiting') AND via NOT IN ('on_halt', 'on_complete', 'on_wait')) AS TEXT) AS standing,
       CAST(ductwork_fingerprint(id, NULL, 1) FILTER (WHERE source_step_id IS NULL AND via NOT IN ('on_halt', 'on_complete', 'on_wait') AND status IN ('completed', 'failed')) AS TEXT) AS passed,
       CAST(ductwork_fingerprint(transition_id, run_id, 1) FILTER (WHERE via NOT IN ('on_halt', 'on_complete', 'on_wait')) AS TEXT) AS produced
  FROM ductwork_steps
