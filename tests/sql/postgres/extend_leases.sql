UPDATE ductwork_executions SET lease_until = (extract(epoch from statement_timestamp()) * 1000000)::bigint + $1
 WHERE process_id = $2 AND completed_at IS NULL
RETURNING id
