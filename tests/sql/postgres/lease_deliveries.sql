WITH free AS MATERIALIZED (
    SELECT id FROM ductwork_deliveries WHERE id = ANY ($1::uuid[]) AND due_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint FOR UPDATE SKIP LOCKED)
UPDATE ductwork_deliveries SET due_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint + $2
 WHERE id = ANY (ARRAY(SELECT id FROM free)) RETURNING id
