DELETE FROM ductwork_executions WHERE ductwork_executions.step_id = ANY ($1::uuid[])
