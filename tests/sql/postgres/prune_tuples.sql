DELETE FROM ductwork_tuples WHERE ductwork_tuples.run_id = ANY ($1::uuid[])
