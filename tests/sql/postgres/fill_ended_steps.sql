INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, output,
     created_at, completed_at)
SELECT (lpad(to_hex($1::bigint), 12, '0') || '70038' || lpad(to_hex(n * $2 + b.place), 15, '0'))::uuid, (lpad(to_hex($1::bigint), 12, '0') || '70018' || lpad(to_hex(n), 15, '0'))::uuid, (lpad(to_hex($1::bigint), 12, '0') || '70028' || lpad(to_hex(n), 15, '0'))::uuid, b.place, b.node, b.step, b.via,
       CASE WHEN b.place > 0 THEN (lpad(to_hex($1::bigint), 12, '0') || '70058' || lpad(to_hex(n * $2 + b.place - 1), 15, '0'))::uuid END,
       'completed', 'null', 'null', (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM generate_series($3::bigint, $4::bigint) AS series(n) CROSS JOIN unnest($5::bigint[], $6::text[], $7::text[], $8::text[]) AS b(place, node, step, via)
