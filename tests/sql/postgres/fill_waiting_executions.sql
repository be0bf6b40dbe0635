INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
SELECT (lpad(to_hex($1::bigint), 12, '0') || '70048' || lpad(to_hex(n), 15, '0'))::uuid, (lpad(to_hex($1::bigint), 12, '0') || '70038' || lpad(to_hex(n), 15, '0'))::uuid, $2, 1 FROM generate_series($3::bigint, $4::bigint) AS series(n)
