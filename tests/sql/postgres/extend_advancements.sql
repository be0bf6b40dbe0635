UPDATE ductwork_advancements SET lease_until = (extract(epoch from statement_timestamp()) * 1000000)::bigint + $1
 WHERE process_id = $2 AND completed_at IS NULL
