SELECT id FROM ductwork_runs
 WHERE cancelling_at IS NOT NULL AND (cancelling_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1 OR cancelling_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER))
 ORDER BY cancelling_at LIMIT 10
