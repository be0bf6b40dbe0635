INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT unhex(printf('%012x70038%015x', ?1, n)), unhex(printf('%012x70018%015x', ?1, n)), unhex(printf('%012x70028%015x', ?1, n)), 0, ?2, ?3, 'start', 'in_progress', 'null', CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (WITH RECURSIVE numbers(n) AS (SELECT ?4 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?5) SELECT n FROM numbers) AS series
