WITH RECURSIVE names (pipeline) AS (
    SELECT min(pipeline) FROM ductwork_availabilities WHERE pipeline >= ''
    UNION ALL
    SELECT (SELECT min(a.pipeline) FROM ductwork_availabilities a WHERE a.pipeline > n.pipeline)
      FROM names n WHERE n.pipeline IS NOT NULL)
SELECT n.pipeline, (extract(epoch from statement_timestamp()) * 1000000)::bigint AS now,
       (SELECT min(a.due_at) FROM ductwork_availabilities a WHERE a.pipeline = n.pipeline) AS first_due_at,
       (SELECT count(*) FROM (
            SELECT 1 FROM ductwork_availabilities a
             WHERE a.pipeline = n.pipeline AND a.due_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint LIMIT $1) x) AS due,
       (SELECT count(*) FROM (
            SELECT 1 FROM ductwork_availabilities a
             WHERE a.pipeline = n.pipeline AND a.due_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint LIMIT $1) x) AS later
  FROM names n WHERE n.pipeline IS NOT NULL
