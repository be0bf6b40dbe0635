INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
SELECT b.id, b.step_id, ?1, 1 FROM (SELECT c0 AS id, c1 AS step_id FROM ductwork_rows(?2)) AS b
