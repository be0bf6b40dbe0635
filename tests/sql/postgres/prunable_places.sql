SELECT e.id FROM ductwork_executions e WHERE e.step_id = ANY ($1::uuid[]) AND e.result IS NULL
