UPDATE ductwork_steps
   SET status = 'advancing', output = coalesce(?1, input), completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
       answered_by = ?2
  FROM (SELECT c0 AS id FROM ductwork_rows(?3)) AS b
 WHERE ductwork_steps.id = b.id AND ductwork_steps.status = 'waiting'
