SELECT count(*) AS n
  FROM ductwork_runs r INDEXED BY ductwork_runs_ended
 WHERE r.status IN ('completed', 'halted', 'cancelled')
   AND coalesce(r.completed_at, r.halted_at, r.cancelled_at) <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1
   AND NOT EXISTS (SELECT 1 FROM ductwork_runs n
                    WHERE n.revived_from = r.id AND (coalesce(n.completed_at, n.halted_at, n.cancelled_at) IS NULL OR coalesce(n.completed_at, n.halted_at, n.cancelled_at) > CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1))
