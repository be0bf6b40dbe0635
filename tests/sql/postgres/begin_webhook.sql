INSERT INTO ductwork_webhooks (name, since, seen) VALUES ($1, (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
ON CONFLICT (name) DO NOTHING
