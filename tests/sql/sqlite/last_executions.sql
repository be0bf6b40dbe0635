SELECT e.step_id, e.result, e.error_class, e.retry_count
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
  JOIN ductwork_executions e ON e.step_id = b.id
       AND e.attempt = (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = b.id)
