DELETE FROM ductwork_migrations WHERE version = 0 AND name = ?
