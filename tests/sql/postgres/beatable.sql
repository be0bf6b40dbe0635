SELECT id FROM ductwork_processes WHERE id = ANY ($1::uuid[]) FOR UPDATE SKIP LOCKED
