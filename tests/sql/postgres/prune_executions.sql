DELETE FROM ductwork_executions WHERE step_id = ANY ($1::uuid[])
