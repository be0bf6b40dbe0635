DELETE FROM ductwork_steps WHERE ductwork_steps.id IN (SELECT c0 FROM ductwork_rows(?1))
