UPDATE ductwork_runs
   SET cancelling_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
       status = CASE WHEN dampened = ? THEN 'in_progress' ELSE status END,
       dampened = dampened - ?
 WHERE id = ? AND status IN ('in_progress', 'dampened')
