WITH found AS (
        SELECT 'run' AS entity, r.id, 'has halted without its hook' AS detail
          FROM ductwork_runs r
          JOIN ductwork_definitions d ON d.digest = r.definition
          JOIN ductwork_branches b ON b.run_id = r.id AND b.fan_out_id IS NULL
          LEFT JOIN ductwork_steps s ON s.branch_id = b.id AND s.via = 'on_halt'
         WHERE r.status = 'halted' AND s.id IS NULL
           AND d.body LIKE '_"pipeline"_"' || d.pipeline || '","on_halt"_%'
        UNION ALL
        SELECT 'step', s.id, 'is a hook, but its run is ' || coalesce(r.status, 'missing')
          FROM ductwork_steps s
          LEFT JOIN ductwork_runs r ON r.id = s.run_id
         WHERE s.via IN ('on_halt', 'on_complete')
           AND (r.status IS NULL OR r.status <> CASE s.via WHEN 'on_halt' THEN 'halted' ELSE 'completed' END)
        UNION ALL
        SELECT 'run', run_id, 'has ' || count(*) || ' hooks of its end'
          FROM ductwork_steps WHERE via IN ('on_halt', 'on_complete')
         GROUP BY run_id HAVING count(*) > 1) SELECT * FROM found LIMIT ?
