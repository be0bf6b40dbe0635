DELETE FROM ductwork_steps WHERE id IN (SELECT c0 FROM ductwork_rows(?1))
