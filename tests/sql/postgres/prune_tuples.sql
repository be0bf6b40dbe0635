DELETE FROM ductwork_tuples WHERE run_id = ANY ($1::uuid[])
