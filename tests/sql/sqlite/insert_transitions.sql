INSERT INTO ductwork_transitions
    (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
SELECT b.id, b.run_id, b.branch_id, b.from_step_id, b.via, b.produced, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS run_id, c2 AS branch_id, c3 AS from_step_id, c4 AS via, c5 AS produced FROM ductwork_rows(?1)) AS b
