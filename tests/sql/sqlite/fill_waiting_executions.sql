INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
SELECT unhex(printf('%012x70048%015x', ?1, n)), unhex(printf('%012x70038%015x', ?1, n)), ?2, 1 FROM (WITH RECURSIVE numbers(n) AS (SELECT ?3 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?4) SELECT n FROM numbers) AS series
