SELECT cancelling_at FROM ductwork_runs WHERE id = ?1
