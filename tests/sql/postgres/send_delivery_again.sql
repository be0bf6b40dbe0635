UPDATE ductwork_deliveries SET attempts = 0, due_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, state = 'waiting' WHERE id = $1
