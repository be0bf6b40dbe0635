SELECT id FROM ductwork_processes WHERE id = ?1
