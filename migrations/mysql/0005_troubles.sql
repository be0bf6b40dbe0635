-- The time at which it last claimed or advanced something, according to its heartbeats.
ALTER TABLE ductwork_processes ADD COLUMN worked_at bigint;
-- The trouble that keeps it from its work, and the time since which it does.
ALTER TABLE ductwork_processes ADD COLUMN trouble longtext;
ALTER TABLE ductwork_processes ADD COLUMN troubled_at bigint;
