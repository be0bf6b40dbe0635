DELETE FROM ductwork_availabilities WHERE ductwork_availabilities.execution_id IN (SELECT c0 FROM ductwork_rows(?1))
