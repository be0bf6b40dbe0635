SELECT id FROM ductwork_branches
 WHERE ready_at IS NOT NULL AND ready_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
 ORDER BY ready_at, id LIMIT ?1 
