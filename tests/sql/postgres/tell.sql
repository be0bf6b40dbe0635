UPDATE ductwork_processes SET trouble = $1, troubled_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint - $2 WHERE id = $3
