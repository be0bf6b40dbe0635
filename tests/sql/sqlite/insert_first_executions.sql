INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
SELECT made.execution_id, made.step_id, ?1, 1 FROM (SELECT c0 AS id, c1 AS input, c2 AS trigger_key, c3 AS branch_id, c4 AS step_id, c5 AS execution_id FROM ductwork_rows(?2)) AS made
