SELECT execution_id FROM ductwork_availabilities
 WHERE execution_id = ANY ($1::uuid[]) ORDER BY execution_id FOR NO KEY UPDATE
