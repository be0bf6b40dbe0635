SELECT execution_id FROM ductwork_availabilities WHERE execution_id > $1
 ORDER BY execution_id LIMIT 1 OFFSET $2
