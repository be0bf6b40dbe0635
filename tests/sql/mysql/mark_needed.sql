UPDATE ductwork_migrations SET needs = ? WHERE version = ?
