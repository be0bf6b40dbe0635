INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at)
SELECT b.id, ?1, ?2, b.input, b.trigger_key, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT unhex(value->>0) AS id, value->>1 AS input, value->>2 AS trigger_key FROM json_each(?3)) AS b
 WHERE true
ON CONFLICT (pipeline, trigger_key) WHERE trigger_key IS NOT NULL DO NOTHING
