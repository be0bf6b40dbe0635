WITH found AS (
        SELECT 'run' AS entity, r.id, 'is ' || r.status || ', but a branch of it is ' || b.status AS detail
          FROM ductwork_branches b
          JOIN ductwork_runs r ON r.id = b.run_id
         WHERE b.status <> 'completed'
           AND CASE b.status WHEN 'halted' THEN r.status = 'completed'
                             WHEN 'cancelled' THEN r.status IN ('completed', 'halted')
                                  OR (r.status <> 'cancelled' AND r.cancelling_at IS NULL)
                             ELSE r.status NOT IN ('in_progress', 'dampened') END
        UNION ALL
        SELECT 'run', r.id, 'is ' || r.status || ', but no branch of it is'
          FROM ductwork_runs r
         WHERE r.status <> 'completed'
           AND NOT EXISTS (SELECT 1 FROM ductwork_branches b
                            WHERE b.run_id = r.id
                              AND CASE r.status WHEN 'halted' THEN b.status = 'halted'
                                                WHEN 'cancelled' THEN b.status = 'cancelled'
                                                ELSE b.status NOT IN ('completed', 'halted', 'cancelled') END)) SELECT * FROM found LIMIT ?
