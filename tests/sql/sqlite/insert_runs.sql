INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at)
SELECT b.id, ?1, ?2, b.input, b.trigger_key, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS input, c2 AS trigger_key FROM ductwork_rows(?3)) AS b
 WHERE true
ON CONFLICT (pipeline, trigger_key) WHERE trigger_key IS NOT NULL DO NOTHING
