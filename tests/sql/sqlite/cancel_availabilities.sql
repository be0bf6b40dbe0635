DELETE FROM ductwork_availabilities WHERE execution_id IN (SELECT c0 FROM ductwork_rows(?1))
