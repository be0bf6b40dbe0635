SELECT version FROM ductwork_migrations ORDER BY version
