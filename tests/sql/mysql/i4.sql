WITH found AS (
        SELECT 'step' AS entity, step_id AS id, 'has ' || count(*) || ' successes' AS detail
          FROM ductwork_executions WHERE result = 'success'
         GROUP BY step_id HAVING count(*) > 1
        UNION ALL
        SELECT 'step', s.id, 'succeeded, but is ' || s.status
          FROM ductwork_steps s
          JOIN ductwork_executions e ON e.step_id = s.id AND e.result = 'success'
         WHERE s.status IN ('in_progress', 'waiting', 'failed')
        UNION ALL
        SELECT 'step', s.id, 'is ' || s.status || ', but no execution of it succeeded'
          FROM ductwork_steps s
          LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.result = 'success'
         WHERE s.status IN ('advancing', 'completed') AND s.source_step_id IS NULL
           AND s.via <> 'dampen' AND e.id IS NULL
        UNION ALL
        SELECT 'step', id, 'is ' || status || CASE WHEN output IS NULL THEN ' without' ELSE ' with' END || ' an output'
          FROM ductwork_steps WHERE (status <> 'cancelled' AND (output IS NOT NULL) <> (status IN ('advancing', 'completed')))) SELECT * FROM found LIMIT ?
