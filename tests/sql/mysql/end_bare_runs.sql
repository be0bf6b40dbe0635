UPDATE ductwork_runs FORCE INDEX (PRIMARY)
   SET status = 'completed', completed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), output = /*chosen id;held.run_id;output;ends*/NULL
 WHERE id IN (/*among held.run_id;ends*/NULL)
   AND status IN ('in_progress', 'dampened')
