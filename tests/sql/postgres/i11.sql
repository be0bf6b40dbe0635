WITH found AS MATERIALIZED (
        SELECT 'transition' AS entity, t.id,
               'says that it produced ' || coalesce(t.produced, 0) || ' steps, there are ' || coalesce(s.n, 0) AS detail
          FROM ductwork_transitions t
          LEFT JOIN (SELECT transition_id, count(*) AS n FROM ductwork_steps
                      WHERE transition_id IS NOT NULL AND via <> 'on_halt'
                      GROUP BY transition_id) s ON s.transition_id = t.id
         WHERE coalesce(t.produced, 0) <> coalesce(s.n, 0)
        UNION ALL
        SELECT 'transition', id, 'has some of end, kind and product, but not all'
          FROM ductwork_transitions WHERE ((completed_at IS NOT NULL) <> (via IS NOT NULL) OR (completed_at IS NOT NULL) <> (produced IS NOT NULL))) SELECT * FROM found LIMIT $1
