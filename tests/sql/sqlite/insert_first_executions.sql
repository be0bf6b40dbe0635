INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
SELECT new_runs.execution_id, new_runs.step_id, ?1, 1 FROM batch_new_runs(?2) AS new_runs
