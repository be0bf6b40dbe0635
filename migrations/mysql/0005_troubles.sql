-- When it last claimed or advanced something, as far as its heartbeats tell.
ALTER TABLE ductwork_processes ADD COLUMN worked_at bigint;
-- What keeps it from getting on, and since when.
ALTER TABLE ductwork_processes ADD COLUMN trouble longtext;
ALTER TABLE ductwork_processes ADD COLUMN troubled_at bigint;
