-- Lists of runs, whatever their status.
CREATE INDEX ductwork_runs_others ON ductwork_runs (status, pipeline, id);
-- With the root of a run in its place, whatever the width of the run.
CREATE INDEX ductwork_branches_of_run ON ductwork_branches (run_id, fan_out_id);
-- The halted branches: the first of them, and the existing reasons.
CREATE INDEX ductwork_branches_reasons ON ductwork_branches (run_id, halt_reason);
-- Processes that are gone: attempts refer to them.
CREATE TABLE ductwork_departed (
    id         binary(16) NOT NULL PRIMARY KEY,
    role       varchar(16) NOT NULL,
    pipeline   varchar(128),
    host       varchar(255) NOT NULL,
    pid        bigint NOT NULL,
    version    varchar(255) NOT NULL,
    started_at bigint NOT NULL,
    gone_at    bigint NOT NULL,
    -- The proof of its death; null if it ended in order.
    death      longtext
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE INDEX ductwork_departed_gone ON ductwork_departed (gone_at, id);
