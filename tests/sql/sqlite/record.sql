INSERT INTO ductwork_migrations (version, name, applied_at) VALUES (?1, ?2, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
