UPDATE ductwork_branches SET ready_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
 WHERE ductwork_branches.id = b.id AND ductwork_branches.status = 'in_progress'
