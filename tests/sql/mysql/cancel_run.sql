UPDATE ductwork_runs
   SET status = 'cancelled', cancelled_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), dampened = 0, cancelling_at = NULL
 WHERE id = ? AND status IN ('in_progress', 'dampened')
