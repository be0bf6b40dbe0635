INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT b.id, ?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER) FROM (SELECT c0 AS id FROM ductwork_rows(?2)) AS b
