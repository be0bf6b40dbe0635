SELECT e.id FROM ductwork_executions e
 WHERE e.process_id = $1 AND e.id = ANY ($2::uuid[]) AND e.result IS NULL
 ORDER BY e.id FOR NO KEY UPDATE
