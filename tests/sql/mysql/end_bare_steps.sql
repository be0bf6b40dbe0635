UPDATE ductwork_steps FORCE INDEX (PRIMARY)
   SET status = /*chosen id;held.step_id;step_status*/NULL, output = /*chosen id;held.step_id;output*/NULL, completed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
 WHERE id IN (/*among held.step_id*/NULL)
   AND status = 'in_progress'
