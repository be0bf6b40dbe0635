UPDATE ductwork_steps
   SET status = 'advancing', output = coalesce(?1, input), completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
       answered_by = ?2
 WHERE status = 'waiting' AND id IN (SELECT b.id FROM (SELECT c0 AS id FROM ductwork_rows(?3)) AS b)
