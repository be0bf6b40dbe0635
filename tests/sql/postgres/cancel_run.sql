UPDATE ductwork_runs
   SET status = 'cancelled', cancelled_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, dampened = 0, cancelling_at = NULL
 WHERE id = $1 AND status IN ('in_progress', 'dampened')
