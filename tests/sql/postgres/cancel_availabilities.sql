DELETE FROM ductwork_availabilities WHERE execution_id = ANY ($1::uuid[])
