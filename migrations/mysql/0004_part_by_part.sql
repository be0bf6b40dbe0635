-- A wide run is cancelled, and deleted, in many transactions. Between two of them it says so, for
-- whoever finishes what was begun: when the last of them was.
ALTER TABLE ductwork_runs ADD COLUMN cancelling_at bigint;
ALTER TABLE ductwork_runs ADD COLUMN pruning_at bigint;
CREATE INDEX ductwork_runs_cancelling ON ductwork_runs (cancelling_at);
CREATE INDEX ductwork_runs_pruning ON ductwork_runs (pruning_at);
