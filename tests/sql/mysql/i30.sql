WITH found AS (
        SELECT 'fan_out' AS entity, f.id, 'has branches whose places are not 0 to ' || (f.width - 1) AS detail
          FROM ductwork_fan_outs f
          JOIN (SELECT fan_out_id, min(ordinal) AS first, max(ordinal) AS last, count(DISTINCT ordinal) AS n
                  FROM ductwork_branches WHERE fan_out_id IS NOT NULL
                 GROUP BY fan_out_id) c ON c.fan_out_id = f.id
          LEFT JOIN ductwork_branches b ON b.id = f.branch_id AND f.via = 'expand' AND f.fired_at IS NULL
                AND b.status IN ('in_progress', 'advancing', 'cancelled')
         WHERE c.first <> 0 OR c.last <> c.n - 1 OR (c.n <> f.width AND b.id IS NULL)
        UNION ALL
        SELECT 'fan_out', f.id, 'nests elsewhere than the branch that it split'
          FROM ductwork_fan_outs f
          JOIN ductwork_branches b ON b.id = f.branch_id
         WHERE NOT ((f.parent_fan_out_id <=> b.fan_out_id)) OR f.parent_ordinal <> b.ordinal) SELECT * FROM found LIMIT ?
