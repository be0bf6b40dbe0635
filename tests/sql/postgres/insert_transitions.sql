INSERT INTO ductwork_transitions
    (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
SELECT b.id, b.run_id, b.branch_id, b.from_step_id, b.via, b.produced, (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::bigint[]) AS b(id, run_id, branch_id, from_step_id, via, produced)
