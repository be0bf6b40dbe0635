SELECT p.id FROM ductwork_processes p WHERE p.id IN (SELECT c0 FROM ductwork_rows(?1))
