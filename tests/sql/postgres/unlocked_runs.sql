SELECT r.id FROM ductwork_runs r WHERE r.id = ANY ($1::uuid[]) FOR NO KEY UPDATE SKIP LOCKED
