INSERT INTO ductwork_migrations (version, name, applied_at) VALUES ($1, $2, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
