INSERT INTO ductwork_metrics (process_id, written_at, body) VALUES (?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?2)
ON CONFLICT (process_id) DO NOTHING
