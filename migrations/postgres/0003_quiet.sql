-- 1: it claims nothing until it is told to, and finishes its claims.
ALTER TABLE ductwork_processes ADD COLUMN quiet bigint NOT NULL DEFAULT 0;
