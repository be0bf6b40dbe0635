SELECT e.id FROM ductwork_executions e WHERE e.step_id IN (SELECT c0 FROM ductwork_rows(?1)) AND e.result IS NULL
