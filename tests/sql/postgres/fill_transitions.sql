INSERT INTO ductwork_transitions
    (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
SELECT (lpad(to_hex($1::bigint), 12, '0') || '70058' || lpad(to_hex(n * $2 + b.place), 15, '0'))::uuid, (lpad(to_hex($1::bigint), 12, '0') || '70018' || lpad(to_hex(n), 15, '0'))::uuid, (lpad(to_hex($1::bigint), 12, '0') || '70028' || lpad(to_hex(n), 15, '0'))::uuid, (lpad(to_hex($1::bigint), 12, '0') || '70038' || lpad(to_hex(n * $2 + b.place), 15, '0'))::uuid,
       b.via, b.produced, (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM generate_series($3::bigint, $4::bigint) AS series(n) CROSS JOIN unnest($5::bigint[], $6::text[], $7::bigint[]) AS b(place, via, produced)
