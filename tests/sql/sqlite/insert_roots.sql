INSERT INTO ductwork_branches (id, run_id, pipeline, ordinal, status, step_id, last_advanced_at)
SELECT new_runs.branch_id, new_runs.id, ?1, 0, 'in_progress', new_runs.step_id, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM batch_new_runs(?2) AS new_runs
