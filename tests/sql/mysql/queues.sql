WITH RECURSIVE names (pipeline) AS (
    SELECT min(pipeline) FROM ductwork_availabilities
    UNION ALL
    SELECT (SELECT min(a.pipeline) FROM ductwork_availabilities a WHERE a.pipeline > n.pipeline)
      FROM names n WHERE n.pipeline IS NOT NULL)
SELECT n.pipeline, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now,
       (SELECT min(a.due_at) FROM ductwork_availabilities a WHERE a.pipeline = n.pipeline) AS first_due_at,
       least(?, (
            SELECT count(*) FROM ductwork_availabilities a
             WHERE a.pipeline = n.pipeline AND a.due_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND a.due_at <= coalesce(
                   (SELECT x.due_at FROM ductwork_availabilities x WHERE x.pipeline = n.pipeline
                     ORDER BY x.due_at LIMIT 1 OFFSET ?), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))))) AS due,
       least(?, (
            SELECT count(*) FROM ductwork_availabilities a
             WHERE a.pipeline = n.pipeline AND a.due_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND a.due_at <= coalesce(
                   (SELECT x.due_at FROM ductwork_availabilities x
                     WHERE x.pipeline = n.pipeline AND x.due_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
                     ORDER BY x.due_at LIMIT 1 OFFSET ?), 9223372036854775807))) AS later
  FROM names n WHERE n.pipeline IS NOT NULL;
