SELECT pipeline, run_id, ready_at AS since FROM ductwork_branches
 WHERE ready_at IS NOT NULL AND ready_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1
 ORDER BY ready_at, id LIMIT 1
