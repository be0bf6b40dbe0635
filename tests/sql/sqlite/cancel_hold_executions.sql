SELECT id FROM ductwork_executions WHERE id IN (SELECT c0 FROM ductwork_rows(?1)) ORDER BY id 
