SELECT result, error_class FROM ductwork_executions
 WHERE step_id = ?1 ORDER BY attempt DESC LIMIT 1
