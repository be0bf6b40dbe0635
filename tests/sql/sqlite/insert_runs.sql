INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at)
SELECT made.id, ?1, ?2, made.input, made.trigger_key, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS input, c2 AS trigger_key, c3 AS branch_id, c4 AS step_id, c5 AS execution_id FROM ductwork_rows(?3)) AS made
