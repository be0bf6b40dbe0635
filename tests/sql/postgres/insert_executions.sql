INSERT INTO ductwork_executions
    (id, step_id, pipeline, attempt, retry_count, crash_count, process_id, claimed_at, lease_until)
SELECT b.id, b.step_id, b.pipeline, b.attempt, b.retry_count, b.crash_count, b.process_id,
       CASE WHEN b.process_id IS NULL THEN NULL ELSE (extract(epoch from statement_timestamp()) * 1000000)::bigint END,
       CASE WHEN b.process_id IS NULL THEN NULL ELSE (extract(epoch from statement_timestamp()) * 1000000)::bigint + $1 END
  FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::uuid[]) AS b(id, step_id, pipeline, attempt, retry_count, crash_count, process_id)
