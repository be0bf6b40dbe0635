UPDATE ductwork_runs
   SET dampened = dampened - ?1,
       status = CASE WHEN dampened = ?1 THEN 'in_progress' ELSE 'dampened' END
 WHERE id = ?2 AND status = 'dampened'
