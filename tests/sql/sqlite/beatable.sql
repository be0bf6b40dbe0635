SELECT id FROM ductwork_processes WHERE id IN (SELECT c0 FROM ductwork_rows(?1)) 
