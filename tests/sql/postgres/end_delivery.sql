UPDATE ductwork_deliveries
   SET attempts = $1 + 1, due_at = NULL, state = $2, tried_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, status = $3,
       error = $4
 WHERE id = $5 AND due_at IS NOT NULL AND attempts = $1
