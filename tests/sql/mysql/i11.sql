WITH found AS (
        SELECT 'transition' AS entity, t.id,
               'says that it produced ' || coalesce(t.produced, 0) || ' steps, there are ' || coalesce(s.n, 0) AS detail
          FROM ductwork_transitions t
          LEFT JOIN (SELECT transition_id, count(*) AS n FROM ductwork_steps
                      WHERE transition_id IS NOT NULL AND via NOT IN ('on_halt', 'on_complete', 'on_wait')
                      GROUP BY transition_id) s ON s.transition_id = t.id
          LEFT JOIN (SELECT f.branch_id, count(*) AS n
                       FROM ductwork_fan_outs f
                       JOIN ductwork_branches b ON b.id = f.branch_id AND b.status IN ('in_progress', 'advancing')
                       JOIN ductwork_branches c ON c.fan_out_id = f.id
                      WHERE f.fired_at IS NULL AND f.via = 'expand'
                      GROUP BY f.branch_id) m ON m.branch_id = t.branch_id AND t.completed_at IS NULL
         WHERE coalesce(t.produced, m.n, 0) <> coalesce(s.n, 0)
           AND t.run_id NOT IN (SELECT id FROM ductwork_runs WHERE pruning_at IS NOT NULL)
        UNION ALL
        SELECT 'transition', id, 'has some of end, kind and product, but not all'
          FROM ductwork_transitions WHERE ((completed_at IS NOT NULL) <> (via IS NOT NULL) OR (completed_at IS NOT NULL) <> (produced IS NOT NULL))) SELECT * FROM found LIMIT ?
