UPDATE ductwork_bulks SET ended_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, stopped_by = $1 WHERE id = $2 AND ended_at IS NULL
