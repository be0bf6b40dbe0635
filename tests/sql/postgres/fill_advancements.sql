INSERT INTO ductwork_advancements
    (id, transition_id, branch_id, process_id, claim_token, claimed_at, lease_until, completed_at, result)
SELECT (lpad(to_hex($1::bigint), 12, '0') || '70068' || lpad(to_hex(n), 15, '0'))::uuid, (lpad(to_hex($1::bigint), 12, '0') || '70058' || lpad(to_hex(n), 15, '0'))::uuid, (lpad(to_hex($1::bigint), 12, '0') || '70028' || lpad(to_hex((n - n % $2) / $2), 15, '0'))::uuid, $3, (lpad(to_hex($1::bigint), 12, '0') || '70078' || lpad(to_hex(n), 15, '0'))::uuid, (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint, 'success'
  FROM generate_series($4::bigint, $5::bigint) AS series(n)
