INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT b.id, b.run_id, b.branch_id, 0, ?1, ?2, 'start', 'in_progress', r.input, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS run_id, c2 AS branch_id FROM ductwork_rows(?3)) AS b
  JOIN ductwork_runs r ON r.id = b.run_id
