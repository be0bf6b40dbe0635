SELECT count(*) AS n
  FROM ductwork_runs r 
 WHERE r.status IN ('completed', 'halted', 'cancelled')
   AND coalesce(r.completed_at, r.halted_at, r.cancelled_at) <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1
   AND NOT EXISTS (SELECT 1 FROM ductwork_runs n
                    WHERE n.revived_from = r.id AND (coalesce(n.completed_at, n.halted_at, n.cancelled_at) IS NULL OR coalesce(n.completed_at, n.halted_at, n.cancelled_at) > (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1))
