SELECT execution_id FROM ductwork_availabilities
 WHERE execution_id IN (SELECT c0 FROM ductwork_rows(?1)) ORDER BY execution_id 
