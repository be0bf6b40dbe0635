UPDATE ductwork_executions
   SET completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), result = results.result, error_class = results.error_class,
       error_message = results.error_message, error_backtrace = results.error_backtrace,
       log = results.log
  FROM batch_results(?1) AS results
 WHERE ductwork_executions.id = results.execution_id
   AND ductwork_executions.process_id = ?2
   AND ductwork_executions.result IS NULL
RETURNING ductwork_executions.id AS execution_id
