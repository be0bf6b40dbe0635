SELECT e.id AS execution_id
  FROM ductwork_results AS results STRAIGHT_JOIN ductwork_executions e FORCE INDEX (PRIMARY) ON e.id = results.execution_id
 WHERE e.process_id = ? AND e.result IS NULL
 ORDER BY e.id FOR UPDATE
;
UPDATE ductwork_results AS results STRAIGHT_JOIN ductwork_executions FORCE INDEX (PRIMARY)
   SET ductwork_executions.completed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ductwork_executions.result = results.result,
       ductwork_executions.error_class = results.error_class,
       ductwork_executions.error_message = results.error_message,
       ductwork_executions.error_backtrace = results.error_backtrace, ductwork_executions.log = results.log
 WHERE ductwork_executions.id = results.execution_id
   AND ductwork_executions.process_id = ?
   AND ductwork_executions.result IS NULL
;
SET @d_whole = 9223372036854775807 + ((ROW_COUNT()) <> FOUND_ROWS())
;
