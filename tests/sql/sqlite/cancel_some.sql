UPDATE ductwork_runs
   SET cancelling_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
       status = CASE WHEN dampened = ?1 THEN 'in_progress' ELSE status END,
       dampened = dampened - ?1
 WHERE id = ?2 AND status IN ('in_progress', 'dampened')
