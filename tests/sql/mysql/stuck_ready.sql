SELECT pipeline, run_id, ready_at AS since FROM ductwork_branches
 WHERE ready_at IS NOT NULL AND ready_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
 ORDER BY ready_at, id LIMIT 1
