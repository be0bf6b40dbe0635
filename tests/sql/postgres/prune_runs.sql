DELETE FROM ductwork_runs WHERE id = ANY ($1::uuid[])
