SELECT id FROM ductwork_branches
 WHERE ready_at IS NOT NULL AND ready_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
   AND (?1 = 1 OR pipeline IN (SELECT b.name FROM (SELECT c0 AS name FROM ductwork_rows(?2)) AS b))
 ORDER BY ready_at, id LIMIT ?3 
