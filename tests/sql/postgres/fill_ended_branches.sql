INSERT INTO ductwork_branches (id, run_id, pipeline, status, step_id, last_advanced_at)
SELECT (lpad(to_hex($1::bigint), 12, '0') || '70028' || lpad(to_hex(n), 15, '0'))::uuid, (lpad(to_hex($1::bigint), 12, '0') || '70018' || lpad(to_hex(n), 15, '0'))::uuid, $2, 'completed', (lpad(to_hex($1::bigint), 12, '0') || '70038' || lpad(to_hex(n * $3 + $3 - 1), 15, '0'))::uuid, (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM generate_series($4::bigint, $5::bigint) AS series(n)
