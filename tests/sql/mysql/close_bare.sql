UPDATE ductwork_held AS held STRAIGHT_JOIN ductwork_executions FORCE INDEX (PRIMARY)
   SET ductwork_executions.completed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ductwork_executions.result = held.result
 WHERE ductwork_executions.id = held.execution_id
   AND ductwork_executions.process_id = ?
   AND ductwork_executions.result IS NULL
