SELECT id, process_id FROM ductwork_executions
 WHERE id = ANY ($1::uuid[]) AND result IS NULL ORDER BY id FOR NO KEY UPDATE
