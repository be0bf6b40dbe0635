DELETE FROM ductwork_migrations WHERE version = ?
