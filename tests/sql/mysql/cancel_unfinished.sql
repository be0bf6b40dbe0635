SELECT id, cancelling_at FROM ductwork_runs
 WHERE cancelling_at IS NOT NULL AND (cancelling_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ? OR cancelling_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
   AND cancelling_at >= ? AND (cancelling_at, id) > (?, ?)
 ORDER BY cancelling_at, id LIMIT ?
