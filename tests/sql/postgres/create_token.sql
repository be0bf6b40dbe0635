INSERT INTO ductwork_tokens (id, kind, name, digest, scope, pipelines, created_at, created_by, expires_at, parent,
                             payloads)
VALUES ($1, $2, $3, $4, $5, $6, (extract(epoch from statement_timestamp()) * 1000000)::bigint, $7, (extract(epoch from statement_timestamp()) * 1000000)::bigint + $8, $9, $10)
