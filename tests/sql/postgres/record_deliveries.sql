UPDATE ductwork_deliveries
   SET attempts = b.attempts + 1, due_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint + b.pause, state = b.state, tried_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint,
       status = b.status, error = b.error
  FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::text[]) AS b(id, attempts, pause, state, status, error)
 WHERE ductwork_deliveries.id = ANY (ARRAY[b.id]) AND ductwork_deliveries.due_at IS NOT NULL
   AND ductwork_deliveries.attempts = b.attempts
RETURNING ductwork_deliveries.id AS id
