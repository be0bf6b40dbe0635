SELECT count(*) AS n FROM ductwork_runs r 
 WHERE r.status IN ('completed', 'halted', 'cancelled')
   AND coalesce(r.completed_at, r.halted_at, r.cancelled_at) <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1
