INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
SELECT b.id, b.step_id, ?1, 1 FROM (SELECT unhex(value->>0) AS id, unhex(value->>1) AS step_id FROM json_each(?2)) AS b
