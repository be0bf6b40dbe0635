SELECT id FROM ductwork_branches
 WHERE ready_at IS NOT NULL AND ready_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
   AND id NOT IN (SELECT x.id FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS x)
   AND (SELECT r.definition FROM ductwork_runs r WHERE r.id = ductwork_branches.run_id)
       NOT IN (SELECT a.digest FROM (SELECT c0 AS digest FROM ductwork_rows(?2)) AS a)
 ORDER BY ready_at, id LIMIT ?3 
