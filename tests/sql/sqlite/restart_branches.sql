UPDATE ductwork_branches
   SET status = b.to_status, output = NULL,
       ready_at = CASE WHEN b.ready = 1 THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) END
  FROM (SELECT c0 AS id, c1 AS to_status, c2 AS ready FROM ductwork_rows(?1)) AS b
 WHERE ductwork_branches.id = b.id
