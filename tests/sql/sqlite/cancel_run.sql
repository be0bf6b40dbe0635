UPDATE ductwork_runs
   SET status = 'cancelled', cancelled_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), dampened = 0, cancelling_at = NULL
 WHERE id = ?1 AND status IN ('in_progress', 'dampened')
