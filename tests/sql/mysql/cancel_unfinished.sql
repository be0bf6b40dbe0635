SELECT id FROM ductwork_runs
 WHERE cancelling_at IS NOT NULL AND cancelling_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ? ORDER BY cancelling_at LIMIT 10
