WITH found AS MATERIALIZED (
        SELECT 'step' AS entity, s.id, 'is a copy, but not from an earlier run of its lineage' AS detail
          FROM ductwork_steps s
          JOIN ductwork_runs r ON r.id = s.run_id
          LEFT JOIN ductwork_steps o ON o.id = s.source_step_id
          LEFT JOIN ductwork_runs q ON q.id = o.run_id
         WHERE s.source_step_id IS NOT NULL
           AND (q.id IS NULL OR r.revived_from IS NULL OR r.pipeline <> q.pipeline OR q.status <> 'halted' OR q.id = r.id)
        UNION ALL
        SELECT 'step', id, 'is a copy, but is ' || status || CASE WHEN output IS NULL THEN ' without' ELSE ' with' END || ' an output'
          FROM ductwork_steps WHERE (source_step_id IS NOT NULL AND (output IS NULL OR status NOT IN ('advancing', 'completed', 'cancelled')))) SELECT * FROM found LIMIT $1
