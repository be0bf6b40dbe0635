SELECT id FROM ductwork_departed WHERE gone_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1 ORDER BY gone_at, id LIMIT $2
