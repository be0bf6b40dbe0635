INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT new_runs.execution_id, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ? FROM ductwork_new_runs AS new_runs
