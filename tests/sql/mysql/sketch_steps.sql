SELECT count(CASE WHEN (status <> 'cancelled' AND (output IS NOT NULL) <> (status IN ('advancing', 'completed'))) THEN 1 END) AS odd_output,
       count(CASE WHEN source_step_id IS NOT NULL THEN 1 END) AS copies,
       count(CASE WHEN via IN ('on_halt', 'on_complete') THEN 1 END) AS hooks,
       count(CASE WHEN transition_id IS NULL AND source_step_id IS NULL
                          AND via NOT IN ('start', 'on_halt', 'on_complete', 'on_wait') THEN 1 END) AS unproduced,
       CAST(coalesce(sum(CASE WHEN source_step_id IS NULL AND via <> 'dampen' THEN CAST(CONV(LEFT(SHA2(id, 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS done,
       CAST(coalesce(sum(CASE WHEN source_step_id IS NULL AND via <> 'dampen'
            AND (status IN ('advancing', 'completed') OR (status = 'cancelled' AND output IS NOT NULL)) THEN CAST(CONV(LEFT(SHA2(id, 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS succeeded,
       CAST(coalesce(sum(CASE WHEN status = 'in_progress' THEN CAST(CONV(LEFT(SHA2(id, 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS in_progress,
       CAST(coalesce(sum(CASE WHEN status IN ('in_progress', 'advancing', 'waiting') AND via NOT IN ('on_halt', 'on_complete', 'on_wait') THEN CAST(CONV(LEFT(SHA2(CONCAT(branch_id, id), 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS standing,
       CAST(coalesce(sum(CASE WHEN source_step_id IS NULL AND via NOT IN ('on_halt', 'on_complete', 'on_wait') AND status IN ('completed', 'failed') THEN CAST(CONV(LEFT(SHA2(id, 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS passed,
       CAST(coalesce(sum(CASE WHEN via NOT IN ('on_halt', 'on_complete', 'on_wait') THEN CAST(CONV(LEFT(SHA2(CONCAT(run_id, transition_id), 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS produced
  FROM ductwork_steps
