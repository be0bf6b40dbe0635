SELECT r.id, r.ended_at AS ended_at
  FROM ductwork_runs r FORCE INDEX (ductwork_runs_ended)
 WHERE r.status IN ('completed', 'halted', 'cancelled')
   AND r.ended_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
   AND NOT EXISTS (SELECT 1 FROM ductwork_runs n WHERE n.revived_from = r.id)
   AND r.ended_at >= ?
   AND (r.ended_at, r.id) > (?, ?)
 ORDER BY r.ended_at, r.id LIMIT ? FOR UPDATE SKIP LOCKED
