INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT new_runs.step_id, new_runs.id, new_runs.branch_id, 0, ?, ?, 'start', 'in_progress',
       new_runs.input, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM ductwork_new_runs AS new_runs
