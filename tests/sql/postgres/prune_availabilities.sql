DELETE FROM ductwork_availabilities WHERE ductwork_availabilities.execution_id = ANY ($1::uuid[])
