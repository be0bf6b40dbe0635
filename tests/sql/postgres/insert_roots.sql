INSERT INTO ductwork_branches (id, run_id, pipeline, ordinal, status, step_id, last_advanced_at)
SELECT b.id, b.run_id, $1, 0, 'in_progress', b.step_id, (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($2::uuid[], $3::uuid[], $4::uuid[]) AS b(id, run_id, step_id)
