INSERT INTO ductwork_runs
    (id, pipeline, definition, status, input, output, triggered_at, completed_at)
SELECT unhex(printf('%012x70018%015x', ?1, n)), ?2, ?3, 'completed', 'null', 'null',
       CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?4 + n, CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?4 + n
  FROM (WITH RECURSIVE numbers(n) AS (SELECT ?5 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?4) SELECT n FROM numbers) AS series
