SELECT name AS holder, applied_at FROM ductwork_migrations WHERE version = 0
