SELECT id FROM ductwork_executions WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE
