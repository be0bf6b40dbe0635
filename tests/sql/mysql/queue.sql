SELECT a.pipeline, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now, a.due_at AS first_due_at,
       (SELECT count(*) FROM (
            SELECT 1 FROM ductwork_availabilities a FORCE INDEX (ductwork_availabilities_due)
             WHERE a.pipeline = ? AND a.due_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) LIMIT ?) x) AS due,
       (SELECT count(*) FROM (
            SELECT 1 FROM ductwork_availabilities a FORCE INDEX (ductwork_availabilities_due)
             WHERE a.pipeline = ? AND a.due_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) LIMIT ?) x) AS later
  FROM ductwork_availabilities a FORCE INDEX (ductwork_availabilities_due)
 WHERE a.pipeline = ? ORDER BY a.pipeline, a.due_at LIMIT 1
