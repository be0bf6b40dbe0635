WITH found AS (
        SELECT 'branch' AS entity, b.id, 'waits, but at no barrier that is still to fire' AS detail
          FROM ductwork_branches b
          LEFT JOIN ductwork_fan_outs f ON f.branch_id = b.id AND f.fired_at IS NULL
         WHERE b.status = 'waiting' AND f.id IS NULL
        UNION ALL
        SELECT 'fan_out', f.id, 'is still to fire, but its branch is ' || coalesce(b.status, 'missing')
          FROM ductwork_fan_outs f
          LEFT JOIN ductwork_branches b ON b.id = f.branch_id
         WHERE f.fired_at IS NULL AND (b.id IS NULL OR b.status NOT IN ('waiting', 'cancelled'))
           AND (b.id IS NULL OR f.via <> 'expand' OR b.status NOT IN ('in_progress', 'advancing')
                OR f.width <= (SELECT count(*) FROM ductwork_branches c WHERE c.fan_out_id = f.id))
        UNION ALL
        SELECT 'branch', branch_id, 'waits at ' || count(*) || ' barriers'
          FROM ductwork_fan_outs WHERE fired_at IS NULL
         GROUP BY branch_id HAVING count(*) > 1) SELECT * FROM found LIMIT ?
