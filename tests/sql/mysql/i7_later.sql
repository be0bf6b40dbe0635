WITH found AS (
        SELECT 'execution' AS entity, e.id,
               'counts ' || e.retry_count || ' errors and ' || e.crash_count || ' crashes after an attempt that counted '
                || p.retry_count || ' and ' || p.crash_count || ' and ended as ' || coalesce(p.result, 'nothing') AS detail
          FROM ductwork_executions e
          JOIN ductwork_executions p ON p.step_id = e.step_id AND p.attempt = e.attempt - 1
         WHERE e.attempt <> 1
           AND (e.retry_count <> p.retry_count + CASE WHEN p.result IN ('error', 'timed_out') THEN 1 ELSE 0 END
                OR e.crash_count <> p.crash_count + CASE WHEN p.result = 'process_crashed' THEN 1 ELSE 0 END)) SELECT * FROM found LIMIT ?
