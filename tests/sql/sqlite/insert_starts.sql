INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT new_runs.step_id, new_runs.id, new_runs.branch_id, 0, ?1, ?2, 'start', 'in_progress',
       new_runs.input, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM batch_new_runs(?3) AS new_runs
