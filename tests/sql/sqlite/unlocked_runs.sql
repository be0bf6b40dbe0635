SELECT r.id FROM ductwork_runs r WHERE r.id IN (SELECT c0 FROM ductwork_rows(?1)) 
