SELECT e.id FROM ductwork_executions e WHERE e.id = ANY ($1::uuid[]) FOR NO KEY UPDATE SKIP LOCKED
