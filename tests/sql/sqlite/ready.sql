SELECT id FROM ductwork_branches
 WHERE ready_at IS NOT NULL AND ready_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
   AND (?1 = 1 OR pipeline IN (SELECT b.name FROM (SELECT value->>0 AS name FROM json_each(?2)) AS b))
 ORDER BY ready_at, id LIMIT ?3 
