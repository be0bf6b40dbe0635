DELETE FROM ductwork_branches WHERE id IN (SELECT c0 FROM ductwork_rows(?1))
