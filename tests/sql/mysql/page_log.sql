SELECT substr(e.error_message, 1, 65536) AS error_message, e.log, e.error_backtrace
  FROM ductwork_executions e WHERE e.step_id = ? AND e.attempt = ?
