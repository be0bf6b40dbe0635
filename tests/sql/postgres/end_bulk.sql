UPDATE ductwork_bulks SET ended_at = coalesce(ended_at, (extract(epoch from statement_timestamp()) * 1000000)::bigint) WHERE id = $1 AND failures = $2
