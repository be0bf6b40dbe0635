WITH free AS MATERIALIZED (
    SELECT id FROM ductwork_deliveries WHERE id = ANY ($1::uuid[]) FOR UPDATE SKIP LOCKED)
UPDATE ductwork_deliveries
   SET attempts = b.made + 1, due_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint + b.pause, state = b.outcome, tried_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint,
       status = b.code, error = b.reason
  FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::text[]) AS b(id, made, pause, outcome, code, reason)
 WHERE ductwork_deliveries.id = ANY (ARRAY[b.id]) AND ductwork_deliveries.id = ANY (ARRAY(SELECT id FROM free))
   AND ductwork_deliveries.due_at IS NOT NULL AND ductwork_deliveries.attempts = b.made
RETURNING ductwork_deliveries.id AS id
