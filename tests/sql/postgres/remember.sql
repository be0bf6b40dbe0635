INSERT INTO ductwork_departed (id, role, pipeline, host, pid, version, started_at, gone_at, death)
VALUES ($1, $2, $3, $4, $5, $6, $7, (extract(epoch from statement_timestamp()) * 1000000)::bigint, $8)
ON CONFLICT (id) DO NOTHING
