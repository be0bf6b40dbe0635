DELETE FROM ductwork_executions WHERE ductwork_executions.step_id IN (SELECT c0 FROM ductwork_rows(?1))
