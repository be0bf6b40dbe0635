UPDATE ductwork_executions FORCE INDEX (PRIMARY)
   SET completed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), result = /*chosen id;held.execution_id;result*/NULL
 WHERE id IN (/*among held.execution_id*/NULL)
   AND process_id = ?
   AND result IS NULL
