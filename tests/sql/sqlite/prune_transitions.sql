DELETE FROM ductwork_transitions WHERE ductwork_transitions.id IN (SELECT c0 FROM ductwork_rows(?1))
