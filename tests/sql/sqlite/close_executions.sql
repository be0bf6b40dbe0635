UPDATE ductwork_executions
   SET completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), result = b.result, error_class = b.error_class,
       error_message = b.error_message, error_backtrace = b.error_backtrace
  FROM (SELECT c0 AS id, c1 AS result, c2 AS error_class, c3 AS error_message, c4 AS error_backtrace FROM ductwork_rows(?1)) AS b
 WHERE ductwork_executions.id = b.id
   AND ductwork_executions.process_id = ?2
   AND ductwork_executions.completed_at IS NULL
RETURNING ductwork_executions.id AS id
