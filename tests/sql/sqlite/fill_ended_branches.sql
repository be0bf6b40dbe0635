INSERT INTO ductwork_branches (id, run_id, pipeline, status, step_id, last_advanced_at)
SELECT unhex(printf('%012x70028%015x', ?1, n)), unhex(printf('%012x70018%015x', ?1, n)), ?2, 'completed', unhex(printf('%012x70038%015x', ?1, n * ?3 + ?3 - 1)), CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (WITH RECURSIVE numbers(n) AS (SELECT ?4 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?5) SELECT n FROM numbers) AS series
