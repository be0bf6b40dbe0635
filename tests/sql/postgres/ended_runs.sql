SELECT r.id, coalesce(r.completed_at, r.halted_at, r.cancelled_at) AS ended_at
  FROM ductwork_runs r 
 WHERE r.status IN ('completed', 'halted', 'cancelled')
   AND coalesce(r.completed_at, r.halted_at, r.cancelled_at) <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1
   AND NOT EXISTS (SELECT 1 FROM ductwork_runs n WHERE n.revived_from = r.id)
   AND coalesce(r.completed_at, r.halted_at, r.cancelled_at) >= $2
   AND (coalesce(r.completed_at, r.halted_at, r.cancelled_at), r.id) > ($2, $3)
 ORDER BY coalesce(r.completed_at, r.halted_at, r.cancelled_at), r.id LIMIT $4 FOR UPDATE SKIP LOCKED
