DELETE FROM ductwork_runs WHERE ductwork_runs.id = ANY ($1::uuid[])
