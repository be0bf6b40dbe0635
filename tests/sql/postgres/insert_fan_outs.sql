INSERT INTO ductwork_fan_outs
    (id, run_id, branch_id, node, via, width, parent_fan_out_id, parent_ordinal, created_at)
SELECT b.id, b.run_id, b.branch_id, b.node, b.via, b.width, b.parent_id, b.parent_ordinal, (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::uuid[], $8::bigint[]) AS b(id, run_id, branch_id, node, via, width, parent_id, parent_ordinal)
