INSERT INTO ductwork_runs
    (id, pipeline, definition, status, input, output, triggered_at, completed_at)
SELECT (lpad(to_hex($1::bigint), 12, '0') || '70018' || lpad(to_hex(n), 15, '0'))::uuid, $2, $3, 'completed', 'null', 'null',
       (extract(epoch from statement_timestamp()) * 1000000)::bigint - $4 + n, (extract(epoch from statement_timestamp()) * 1000000)::bigint - $4 + n
  FROM generate_series($5::bigint, $4::bigint) AS series(n)
