INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT (lpad(to_hex($1::bigint), 12, '0') || '70048' || lpad(to_hex(n), 15, '0'))::uuid, $2, (extract(epoch from statement_timestamp()) * 1000000)::bigint FROM generate_series($3::bigint, $4::bigint) AS series(n)
