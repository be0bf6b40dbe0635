INSERT INTO ductwork_executions
    (id, step_id, pipeline, attempt, retry_count, crash_count)
SELECT b.id, b.step_id, b.pipeline, b.attempt, b.retry_count, b.crash_count
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[]) AS b(id, step_id, pipeline, attempt, retry_count, crash_count)
