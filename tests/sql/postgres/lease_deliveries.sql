UPDATE ductwork_deliveries SET due_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint + $1
 WHERE id = ANY ($2::uuid[]) AND due_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint RETURNING id
