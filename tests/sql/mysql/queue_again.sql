INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT b.id, ?,
       coalesce(CASE WHEN ? > 0 THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ? END,
                (SELECT CASE WHEN min(a.due_at) < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) THEN min(a.due_at) - 1 END
                   FROM ductwork_availabilities a WHERE a.pipeline = ?),
                TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b
