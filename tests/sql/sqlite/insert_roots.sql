INSERT INTO ductwork_branches (id, run_id, pipeline, ordinal, status, step_id, last_advanced_at)
SELECT made.branch_id, made.id, ?1, 0, 'in_progress', made.step_id, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS input, c2 AS trigger_key, c3 AS branch_id, c4 AS step_id, c5 AS execution_id FROM ductwork_rows(?2)) AS made
