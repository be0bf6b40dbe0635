INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT b.id, ?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?2 FROM (SELECT unhex(value->>0) AS id FROM json_each(?3)) AS b
