INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT unhex(printf('%012x70048%015x', ?1, n)), ?2, CAST(unixepoch('subsec') * 1000000 AS INTEGER) FROM (WITH RECURSIVE numbers(n) AS (SELECT ?3 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?4) SELECT n FROM numbers) AS series
