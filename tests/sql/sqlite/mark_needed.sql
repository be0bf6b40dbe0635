UPDATE ductwork_migrations SET needs = ?1 WHERE version = ?1
