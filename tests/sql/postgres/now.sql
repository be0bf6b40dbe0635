SELECT (extract(epoch from statement_timestamp()) * 1000000)::bigint AS now
