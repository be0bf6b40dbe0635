SELECT e.id AS execution_id
  FROM ductwork_results AS results STRAIGHT_JOIN ductwork_executions e FORCE INDEX (PRIMARY) ON e.id = results.execution_id
 WHERE e.process_id = ? AND e.result IS NULL
 ORDER BY e.id FOR UPDATE
