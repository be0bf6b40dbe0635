DELETE FROM ductwork_runs WHERE id IN (SELECT c0 FROM ductwork_rows(?1))
