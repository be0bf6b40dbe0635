WITH found AS (
        SELECT 'run' AS entity, r.id, 'has completed without its hook' AS detail
          FROM ductwork_definitions d
         CROSS JOIN ductwork_runs r
         CROSS JOIN ductwork_branches b
          LEFT JOIN ductwork_steps s ON s.branch_id = b.id AND s.via = 'on_complete'
         WHERE d.body LIKE '_"pipeline"_"' || d.pipeline || '",%"on_complete"_"%","nodes"_[%'
           AND r.definition = d.digest AND r.status = 'completed'
           AND b.run_id = r.id AND b.fan_out_id IS NULL AND s.id IS NULL) SELECT * FROM found LIMIT ?
