INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT new_runs.execution_id, ?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?2 FROM batch_new_runs(?3) AS new_runs
