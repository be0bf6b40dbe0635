INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT b.id, ?1,
       coalesce(CASE WHEN ?2 > 0 THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?2 END,
                (SELECT CASE WHEN min(a.due_at) < CAST(unixepoch('subsec') * 1000000 AS INTEGER) THEN min(a.due_at) - 1 END
                   FROM ductwork_availabilities a WHERE a.pipeline = ?1),
                CAST(unixepoch('subsec') * 1000000 AS INTEGER))
  FROM (SELECT c0 AS id FROM ductwork_rows(?3)) AS b
