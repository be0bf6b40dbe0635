INSERT INTO ductwork_migrations (version, name, applied_at)
VALUES (?1, 'a copy that is not complete', CAST(unixepoch('subsec') * 1000000 AS INTEGER))
