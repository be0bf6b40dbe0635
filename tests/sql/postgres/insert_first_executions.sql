INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
SELECT b.id, b.step_id, $1, 1 FROM unnest($2::uuid[], $3::uuid[]) AS b(id, step_id)
