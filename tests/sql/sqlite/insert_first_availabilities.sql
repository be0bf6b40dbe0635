INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT made.execution_id, ?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?2 FROM (SELECT c0 AS id, c1 AS input, c2 AS trigger_key, c3 AS branch_id, c4 AS step_id, c5 AS execution_id FROM ductwork_rows(?3)) AS made
