-- The oldest version of the schema that a program must know in order to work with this one.
ALTER TABLE ductwork_migrations ADD COLUMN needs bigint NOT NULL DEFAULT 0;
