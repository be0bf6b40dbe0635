DELETE FROM ductwork_runs WHERE ductwork_runs.id IN (SELECT c0 FROM ductwork_rows(?1))
