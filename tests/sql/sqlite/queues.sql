WITH RECURSIVE names (pipeline) AS (
    SELECT min(pipeline) FROM ductwork_availabilities WHERE pipeline >= ''
    UNION ALL
    SELECT (SELECT min(a.pipeline) FROM ductwork_availabilities a WHERE a.pipeline > n.pipeline)
      FROM names n WHERE n.pipeline IS NOT NULL)
SELECT n.pipeline, CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now,
       (SELECT min(a.due_at) FROM ductwork_availabilities a WHERE a.pipeline = n.pipeline) AS first_due_at,
       (SELECT count(*) FROM (
            SELECT 1 FROM ductwork_availabilities a
             WHERE a.pipeline = n.pipeline AND a.due_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) LIMIT ?1) x) AS due,
       (SELECT count(*) FROM (
            SELECT 1 FROM ductwork_availabilities a
             WHERE a.pipeline = n.pipeline AND a.due_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) LIMIT ?1) x) AS later
  FROM names n WHERE n.pipeline IS NOT NULL
