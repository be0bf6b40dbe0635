DELETE FROM ductwork_transitions WHERE id IN (SELECT c0 FROM ductwork_rows(?1))
