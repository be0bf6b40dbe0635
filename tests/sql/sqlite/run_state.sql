SELECT pipeline, status, output FROM ductwork_runs WHERE id = ?1
