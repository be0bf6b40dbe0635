SELECT id, process_id FROM ductwork_executions
 WHERE id IN (SELECT c0 FROM ductwork_rows(?1)) AND result IS NULL ORDER BY id 
