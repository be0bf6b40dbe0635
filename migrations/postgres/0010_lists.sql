-- Lists of runs through indexes that together cost less to maintain than the one that they replace: a completed run is
-- in one of them, any other run in the other.
CREATE INDEX ductwork_runs_completed ON ductwork_runs (pipeline, id) WHERE status = 'completed';
CREATE INDEX ductwork_runs_others ON ductwork_runs (status, pipeline, id) WHERE status <> 'completed';
DROP INDEX ductwork_runs_status;
-- A lineage is a line (I21); the many runs that continue no other run are left out.
CREATE UNIQUE INDEX ductwork_runs_revived_from ON ductwork_runs (revived_from) WHERE revived_from IS NOT NULL;
ALTER TABLE ductwork_runs DROP CONSTRAINT ductwork_runs_revived_from_key;
-- With the root of a run in its place, whatever the width of the run.
CREATE INDEX ductwork_branches_of_run ON ductwork_branches (run_id, fan_out_id);
DROP INDEX ductwork_branches_run;
-- The halted branches: the first of them, and the existing reasons.
CREATE INDEX ductwork_branches_halted ON ductwork_branches (run_id, id) WHERE halt_reason IS NOT NULL;
CREATE INDEX ductwork_branches_reasons ON ductwork_branches (run_id, halt_reason) WHERE halt_reason IS NOT NULL;
-- Processes that are gone: attempts refer to them.
CREATE TABLE ductwork_departed (
    id         uuid PRIMARY KEY,
    role       text NOT NULL,
    pipeline   text,
    host       text NOT NULL,
    pid        bigint NOT NULL,
    version    text NOT NULL,
    started_at bigint NOT NULL,
    gone_at    bigint NOT NULL,
    -- The proof of its death; null if it ended in order.
    death      text
);
CREATE INDEX ductwork_departed_gone ON ductwork_departed (gone_at, id);
