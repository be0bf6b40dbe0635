WITH found AS (
        SELECT 'fan_out' AS entity, f.id,
               'counts ' || f.arrived || ' of ' || f.width || ' arrived and ' || f.halted || ' halted; there are '
                || coalesce(c.ended, 0) || ' of ' || coalesce(c.n, 0) || ' and ' || coalesce(c.halted, 0) AS detail
          FROM ductwork_fan_outs f
          LEFT JOIN (SELECT fan_out_id, count(*) AS n,
                            sum(CASE WHEN status IN ('completed', 'halted') THEN 1 ELSE 0 END) AS ended,
                            sum(CASE WHEN status = 'halted' THEN 1 ELSE 0 END) AS halted
                       FROM ductwork_branches WHERE fan_out_id IS NOT NULL
                      GROUP BY fan_out_id) c ON c.fan_out_id = f.id
          LEFT JOIN ductwork_branches b ON b.id = f.branch_id AND f.via = 'expand' AND f.fired_at IS NULL
                AND b.status IN ('in_progress', 'advancing', 'cancelled')
         WHERE (f.width <> coalesce(c.n, 0) AND (b.id IS NULL OR f.width < c.n)) OR f.arrived <> coalesce(c.ended, 0) OR f.halted <> coalesce(c.halted, 0)
        UNION ALL
        SELECT 'fan_out', id, 'has ' || arrived || ' of ' || width || ' arrived, but has'
                || CASE WHEN fired_at IS NULL THEN ' not' ELSE '' END || ' fired'
          FROM ductwork_fan_outs
         WHERE arrived > width OR halted > arrived OR (fired_at IS NOT NULL) <> (arrived = width)) SELECT * FROM found LIMIT ?
