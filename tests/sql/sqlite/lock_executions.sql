SELECT id FROM ductwork_executions
 WHERE process_id = ?1 AND completed_at IS NULL ORDER BY id 
