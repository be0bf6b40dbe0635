INSERT INTO ductwork_branches (id, run_id, pipeline, ordinal, status, step_id, last_advanced_at)
SELECT b.id, b.run_id, ?1, 0, 'in_progress', b.step_id, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS run_id, c2 AS step_id FROM ductwork_rows(?2)) AS b
