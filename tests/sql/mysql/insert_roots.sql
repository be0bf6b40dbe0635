INSERT INTO ductwork_branches (id, run_id, pipeline, ordinal, status, step_id, last_advanced_at)
SELECT new_runs.branch_id, new_runs.id, ?, 0, 'in_progress', new_runs.step_id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM ductwork_new_runs AS new_runs
