INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT (lpad(to_hex($1::bigint), 12, '0') || '70038' || lpad(to_hex(n), 15, '0'))::uuid, (lpad(to_hex($1::bigint), 12, '0') || '70018' || lpad(to_hex(n), 15, '0'))::uuid, (lpad(to_hex($1::bigint), 12, '0') || '70028' || lpad(to_hex(n), 15, '0'))::uuid, 0, $2, $3, 'start', 'in_progress', 'null', (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM generate_series($4::bigint, $5::bigint) AS series(n)
