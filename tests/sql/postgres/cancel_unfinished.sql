SELECT id FROM ductwork_runs
 WHERE cancelling_at IS NOT NULL AND (cancelling_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1 OR cancelling_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint)
 ORDER BY cancelling_at LIMIT 10
