INSERT INTO ductwork_webhooks (name, since, seen) VALUES (?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER))
ON CONFLICT (name) DO NOTHING
