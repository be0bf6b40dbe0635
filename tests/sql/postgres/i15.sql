SELECT 'run' AS entity, r.id,
       'is ' || r.status || ' with ' || coalesce(b.active, 0) || ' active, ' || coalesce(b.halted, 0) || ' halted, '
        || coalesce(b.cancelled, 0) || ' cancelled of ' || coalesce(b.n, 0) || ' branches' AS detail
  FROM ductwork_runs r
  LEFT JOIN (SELECT run_id, count(*) AS n,
                    sum(CASE WHEN status IN ('completed', 'halted', 'cancelled') THEN 0 ELSE 1 END) AS active,
                    sum(CASE WHEN status = 'halted' THEN 1 ELSE 0 END) AS halted,
                    sum(CASE WHEN status = 'cancelled' THEN 1 ELSE 0 END) AS cancelled
               FROM ductwork_branches GROUP BY run_id) b ON b.run_id = r.id
 WHERE (r.status IN ('in_progress', 'dampened')) <> (coalesce(b.active, 0) > 0)
    OR (r.status = 'completed' AND b.halted + b.cancelled > 0)
    OR (r.status = 'halted' AND (b.halted = 0 OR b.cancelled > 0))
    OR (r.status = 'cancelled' AND b.cancelled = 0)
 LIMIT $1
