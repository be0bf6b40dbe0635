INSERT INTO ductwork_runs (id, pipeline, definition, input, triggered_at)
SELECT unhex(printf('%012x70018%015x', ?1, n)), ?2, ?3, 'null', CAST(unixepoch('subsec') * 1000000 AS INTEGER) FROM (WITH RECURSIVE numbers(n) AS (SELECT ?4 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?5) SELECT n FROM numbers) AS series
