INSERT INTO ductwork_definitions (digest, pipeline, body, created_at)
VALUES ($1, $2, $3, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
ON CONFLICT (digest) DO NOTHING
