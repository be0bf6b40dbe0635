-- A wide run is cancelled, and deleted, in many transactions. Between two of them its row records
-- the time of the last one, for the process that finishes the work.
ALTER TABLE ductwork_runs ADD COLUMN cancelling_at bigint;
ALTER TABLE ductwork_runs ADD COLUMN pruning_at bigint;
CREATE INDEX ductwork_runs_cancelling ON ductwork_runs (cancelling_at);
CREATE INDEX ductwork_runs_pruning ON ductwork_runs (pruning_at);
