INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
SELECT new_runs.execution_id, new_runs.step_id, ?, 1 FROM ductwork_new_runs AS new_runs
