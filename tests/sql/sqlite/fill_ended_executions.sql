INSERT INTO ductwork_executions
    (id, step_id, pipeline, attempt, process_id, claimed_at, lease_until, completed_at, result)
SELECT unhex(printf('%012x70048%015x', ?1, n)), unhex(printf('%012x70038%015x', ?1, n)), ?2, 1, ?3, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), 'success'
  FROM (WITH RECURSIVE numbers(n) AS (SELECT ?4 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?5) SELECT n FROM numbers) AS series
