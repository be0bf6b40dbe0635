SELECT count(*) AS n
  FROM ductwork_runs r FORCE INDEX (ductwork_runs_ended)
 WHERE r.status IN ('completed', 'halted', 'cancelled')
   AND r.ended_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
   AND NOT EXISTS (SELECT 1 FROM ductwork_runs n
                    WHERE n.revived_from = r.id AND (n.ended_at IS NULL OR n.ended_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?))
