INSERT INTO ductwork_executions
    (id, step_id, pipeline, attempt, process_id, claimed_at, lease_until, completed_at, result)
SELECT (lpad(to_hex($1::bigint), 12, '0') || '70048' || lpad(to_hex(n), 15, '0'))::uuid, (lpad(to_hex($1::bigint), 12, '0') || '70038' || lpad(to_hex(n), 15, '0'))::uuid, $2, 1, $3, (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint, 'success'
  FROM generate_series($4::bigint, $5::bigint) AS series(n)
