-- A transaction that must keep a row as it is, and has nothing to change in it, increments its counter: a node of a
-- cluster tells the others of changed rows, but of no locks.

ALTER TABLE ductwork_runs ADD COLUMN revivals integer NOT NULL DEFAULT 0;
ALTER TABLE ductwork_pauses ADD COLUMN holds integer NOT NULL DEFAULT 0;
