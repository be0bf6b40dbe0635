INSERT INTO ductwork_migrations (version, name, applied_at)
VALUES ($1, 'a copy that is not complete', (extract(epoch from statement_timestamp()) * 1000000)::bigint)
