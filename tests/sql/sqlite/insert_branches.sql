INSERT INTO ductwork_branches
    (id, run_id, pipeline, fan_out_id, ordinal, status, step_id, last_advanced_at)
SELECT b.id, b.run_id, b.pipeline, b.fan_out_id, b.ordinal, 'in_progress', b.step_id, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS run_id, c2 AS pipeline, c3 AS fan_out_id, c4 AS ordinal, c5 AS step_id FROM ductwork_rows(?1)) AS b
