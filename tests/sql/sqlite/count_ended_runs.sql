SELECT count(*) AS n FROM ductwork_runs r INDEXED BY ductwork_runs_ended
 WHERE r.status IN ('completed', 'halted', 'cancelled')
   AND coalesce(r.completed_at, r.halted_at, r.cancelled_at) <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1
