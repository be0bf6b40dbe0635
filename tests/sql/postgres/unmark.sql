DELETE FROM ductwork_migrations WHERE version = $1
