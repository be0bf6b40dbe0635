INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT made.step_id, made.id, made.branch_id, 0, ?1, ?2, 'start', 'in_progress', made.input, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS input, c2 AS trigger_key, c3 AS branch_id, c4 AS step_id, c5 AS execution_id FROM ductwork_rows(?3)) AS made
