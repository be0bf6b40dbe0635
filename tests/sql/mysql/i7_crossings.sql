WITH found AS (
        SELECT 'transition' AS entity, t.id,
               'counts ' || t.retry_count || ' errors and ' || t.crash_count || ' crashes, but its attempts had '
                || coalesce(a.errors, 0) || ' and ' || coalesce(a.crashes, 0) AS detail
          FROM ductwork_transitions t
          LEFT JOIN (SELECT transition_id AS id, count(CASE WHEN result = 'error' THEN 1 END) AS errors,
                            count(CASE WHEN result = 'process_crashed' THEN 1 END) AS crashes
                       FROM ductwork_advancements
                      WHERE result IN ('error', 'process_crashed') GROUP BY transition_id) a ON a.id = t.id
         WHERE t.retry_count <> coalesce(a.errors, 0) OR t.crash_count <> coalesce(a.crashes, 0)) SELECT * FROM found LIMIT ?
