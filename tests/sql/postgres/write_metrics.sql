UPDATE ductwork_metrics SET written_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, body = $1 WHERE process_id = $2
