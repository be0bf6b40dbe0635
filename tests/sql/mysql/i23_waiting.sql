WITH found AS (
        SELECT 'branch' AS entity, b.id, 'waits for a person without its hook' AS detail
          FROM ductwork_runs r
          JOIN ductwork_definitions d ON d.digest = r.definition
               AND d.body LIKE '_"pipeline"_"' || d.pipeline || '",%"on_wait"_"%","nodes"_[%'
          JOIN ductwork_branches b ON b.run_id = r.id AND b.status = 'dampened'
          JOIN ductwork_steps q ON q.id = b.step_id
          LEFT JOIN ductwork_steps s ON s.branch_id = b.id AND s.ordinal = -q.ordinal AND s.via = 'on_wait'
         WHERE r.status = 'dampened' AND s.id IS NULL) SELECT * FROM found LIMIT ?
