INSERT INTO ductwork_branches
    (id, run_id, pipeline, fan_out_id, ordinal, status, step_id, last_advanced_at)
SELECT b.id, b.run_id, b.pipeline, b.fan_out_id, b.ordinal, 'in_progress', b.step_id, (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::bigint[], $6::uuid[]) AS b(id, run_id, pipeline, fan_out_id, ordinal, step_id)
