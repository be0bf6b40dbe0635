INSERT INTO ductwork_transitions
    (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
SELECT unhex(printf('%012x70058%015x', ?1, n * ?2 + b.place)), unhex(printf('%012x70018%015x', ?1, n)), unhex(printf('%012x70028%015x', ?1, n)), unhex(printf('%012x70038%015x', ?1, n * ?2 + b.place)),
       b.via, b.produced, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (WITH RECURSIVE numbers(n) AS (SELECT ?3 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?4) SELECT n FROM numbers) AS series CROSS JOIN (SELECT c0 AS place, c1 AS via, c2 AS produced FROM ductwork_rows(?5)) AS b
