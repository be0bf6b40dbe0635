SELECT id FROM ductwork_branches
 WHERE ready_at IS NOT NULL AND ready_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
   AND (?1 = 1 OR pipeline IN (SELECT b.name FROM (SELECT c0 AS name FROM ductwork_rows(?2)) AS b))
   AND id NOT IN (SELECT x.id FROM (SELECT c0 AS id FROM ductwork_rows(?3)) AS x)
   AND (SELECT r.definition FROM ductwork_runs r WHERE r.id = ductwork_branches.run_id)
       NOT IN (SELECT a.digest FROM (SELECT c0 AS digest FROM ductwork_rows(?4)) AS a)
 ORDER BY ready_at, id LIMIT ?5 
