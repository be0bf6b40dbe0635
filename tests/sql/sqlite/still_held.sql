SELECT e.id FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b JOIN ductwork_executions e ON e.id = b.id
 WHERE e.process_id = ?2 AND e.result IS NULL
