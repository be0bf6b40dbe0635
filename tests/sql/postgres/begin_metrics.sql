INSERT INTO ductwork_metrics (process_id, written_at, body) VALUES ($1, (extract(epoch from statement_timestamp()) * 1000000)::bigint, $2)
ON CONFLICT (process_id) DO NOTHING
