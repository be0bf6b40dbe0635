INSERT INTO ductwork_migrations (version, name, applied_at) VALUES (0, ?, 0)
ON DUPLICATE KEY UPDATE version = ductwork_migrations.version
