-- A process claims through one connection at a time. Each connection that it gives up ends an
-- epoch: a statement that was sent through it and arrives later claims nothing (store/process.rs,
-- FENCE_EARLIER).
ALTER TABLE ductwork_processes ADD COLUMN epoch bigint NOT NULL DEFAULT 0;
