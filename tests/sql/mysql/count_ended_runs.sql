SELECT count(*) AS n FROM ductwork_runs r FORCE INDEX (ductwork_runs_ended)
 WHERE r.status IN ('completed', 'halted', 'cancelled')
   AND r.ended_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
