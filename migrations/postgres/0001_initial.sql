-- Times are microseconds since 1970, UTC, from the database's clock. Payloads are JSON as text:
-- \u0000 survives, and nothing is parsed twice. Numbers In name the invariants that a constraint
-- enforces (ARCHITECTURE.md).
--
-- Tables whose rows are soon rewritten leave room on each page (fillfactor), so that a new version
-- goes next to the old one and no index has to be updated. This takes no more disk: without it, the
-- room of the old versions would be left over instead.

-- Words as domains: a domain's check is parsed once per session, a table's once per statement.
CREATE DOMAIN ductwork_run_status AS text CHECK (VALUE IN
    ('in_progress', 'dampened', 'completed', 'halted', 'cancelled'));
CREATE DOMAIN ductwork_branch_status AS text CHECK (VALUE IN
    ('in_progress', 'advancing', 'waiting', 'dampened', 'completed', 'halted', 'cancelled'));
CREATE DOMAIN ductwork_fan_out_via AS text CHECK (VALUE IN ('divide', 'expand'));
CREATE DOMAIN ductwork_step_status AS text CHECK (VALUE IN
    ('in_progress', 'advancing', 'waiting', 'completed', 'failed', 'cancelled'));
CREATE DOMAIN ductwork_execution_result AS text CHECK (VALUE IN
    ('success', 'error', 'process_crashed', 'timed_out', 'cancelled', 'released'));
CREATE DOMAIN ductwork_advancement_result AS text CHECK (VALUE IN
    ('success', 'error', 'process_crashed', 'cancelled', 'released'));
CREATE DOMAIN ductwork_process_role AS text CHECK (VALUE IN
    ('supervisor', 'advancer', 'worker'));

CREATE TABLE ductwork_definitions (
    digest     text PRIMARY KEY,
    pipeline   text NOT NULL,
    body       text NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE ductwork_runs (
    id           uuid PRIMARY KEY,
    pipeline     text NOT NULL,
    definition   text NOT NULL,
    status       ductwork_run_status NOT NULL DEFAULT 'in_progress',
    input        text NOT NULL,
    output       text,
    trigger_key  text,
    -- A run is revived at most once, so a lineage is a line with one active end (I21).
    revived_from uuid UNIQUE,
    -- Branches that wait for a person; the run is dampened while there is one.
    dampened     bigint NOT NULL DEFAULT 0 CHECK (dampened >= 0),
    triggered_at bigint NOT NULL,
    completed_at bigint,
    halted_at    bigint,
    cancelled_at bigint,
    CONSTRAINT ductwork_runs_times CHECK ( -- I16
        (completed_at IS NOT NULL) = (status = 'completed')
        AND (halted_at IS NOT NULL) = (status = 'halted')
        AND (cancelled_at IS NOT NULL) = (status = 'cancelled')
        AND (output IS NOT NULL) = (status = 'completed'))
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX ductwork_runs_trigger_key -- I28
    ON ductwork_runs (pipeline, trigger_key) WHERE trigger_key IS NOT NULL;
CREATE INDEX ductwork_runs_status ON ductwork_runs (status, id);
-- The index that retention searches.
CREATE INDEX ductwork_runs_ended ON ductwork_runs (coalesce(completed_at, halted_at, cancelled_at))
    WHERE status IN ('completed', 'halted', 'cancelled');

CREATE TABLE ductwork_branches (
    id                       uuid PRIMARY KEY,
    run_id                   uuid NOT NULL,
    pipeline                 text NOT NULL,
    -- The barrier at which it arrives, and its place in the fan-out; none for a run's root.
    fan_out_id               uuid,
    ordinal                  bigint NOT NULL DEFAULT 0,
    status                   ductwork_branch_status NOT NULL,
    halt_reason              text,
    -- Its current step: the one with the highest ordinal.
    step_id                  uuid NOT NULL,
    -- The value that it ended with, if that is not its last step's output.
    output                   text,
    -- The time since which it waits to be advanced; null if it does not.
    ready_at                 bigint,
    claim_token              uuid,
    claimed_for_advancing_at bigint,
    last_advanced_at         bigint,
    CONSTRAINT ductwork_branches_claim CHECK ( -- I9
        (claim_token IS NOT NULL) = (status = 'advancing')
        AND (claim_token IS NOT NULL) = (claimed_for_advancing_at IS NOT NULL)),
    CONSTRAINT ductwork_branches_ready CHECK (ready_at IS NULL OR status = 'in_progress'),
    CONSTRAINT ductwork_branches_halt CHECK (halt_reason IS NULL OR status = 'halted')
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX ductwork_branches_fan_out
    ON ductwork_branches (fan_out_id, ordinal) WHERE fan_out_id IS NOT NULL; -- I30
CREATE INDEX ductwork_branches_run ON ductwork_branches (run_id);
CREATE INDEX ductwork_branches_ready
    ON ductwork_branches (ready_at, id) WHERE ready_at IS NOT NULL;

CREATE TABLE ductwork_fan_outs (
    id                uuid PRIMARY KEY,
    run_id            uuid NOT NULL,
    -- The branch that was split, and waits.
    branch_id         uuid NOT NULL,
    node              text NOT NULL,
    via               ductwork_fan_out_via NOT NULL,
    width             bigint NOT NULL CHECK (width > 0),
    arrived           bigint NOT NULL DEFAULT 0,
    halted            bigint NOT NULL DEFAULT 0,
    -- The splitting branch's own place in a fan-out.
    parent_fan_out_id uuid,
    parent_ordinal    bigint NOT NULL DEFAULT 0,
    created_at        bigint NOT NULL,
    fired_at          bigint,
    CONSTRAINT ductwork_fan_outs_arithmetic CHECK ( -- I13
        arrived BETWEEN 0 AND width AND halted BETWEEN 0 AND arrived
        AND (fired_at IS NOT NULL) = (arrived = width))
) WITH (fillfactor = 50);
CREATE INDEX ductwork_fan_outs_branch ON ductwork_fan_outs (branch_id);

CREATE TABLE ductwork_steps (
    id             uuid PRIMARY KEY,
    run_id         uuid NOT NULL,
    branch_id      uuid NOT NULL,
    -- Its place on its branch.
    ordinal        bigint NOT NULL,
    node           text NOT NULL,
    step           text NOT NULL,
    via            text NOT NULL,
    -- The transition that produced it; none for a start, a hook, a copy.
    transition_id  uuid,
    -- The step that it copies (revive).
    source_step_id uuid,
    status         ductwork_step_status NOT NULL,
    input          text NOT NULL,
    output         text,
    created_at     bigint NOT NULL,
    completed_at   bigint,
    CONSTRAINT ductwork_steps_output CHECK ( -- I4, I14
        status = 'cancelled' OR (output IS NOT NULL) = (status IN ('advancing', 'completed')))
) WITH (fillfactor = 50);
-- I12, I19: a branch has one step at each place, so it cannot be advanced twice.
CREATE UNIQUE INDEX ductwork_steps_branch ON ductwork_steps (branch_id, ordinal);

CREATE TABLE ductwork_executions (
    id              uuid PRIMARY KEY,
    step_id         uuid NOT NULL,
    pipeline        text NOT NULL,
    attempt         bigint NOT NULL CHECK (attempt > 0),
    -- Errors and crashes of earlier attempts.
    retry_count     bigint NOT NULL DEFAULT 0,
    crash_count     bigint NOT NULL DEFAULT 0,
    process_id      uuid,
    claimed_at      bigint,
    lease_until     bigint,
    completed_at    bigint,
    result          ductwork_execution_result,
    error_class     text,
    error_message   text,
    error_backtrace text,
    CONSTRAINT ductwork_executions_claim CHECK ( -- I2
        (process_id IS NULL) = (claimed_at IS NULL)
        AND (process_id IS NULL) = (lease_until IS NULL)),
    CONSTRAINT ductwork_executions_result CHECK ((completed_at IS NULL) = (result IS NULL)) -- I3
);
CREATE UNIQUE INDEX ductwork_executions_attempt ON ductwork_executions (step_id, attempt);
CREATE UNIQUE INDEX ductwork_executions_open -- I1
    ON ductwork_executions (step_id) WHERE completed_at IS NULL;
CREATE UNIQUE INDEX ductwork_executions_success -- I4
    ON ductwork_executions (step_id) WHERE result = 'success';
CREATE INDEX ductwork_executions_claimed
    ON ductwork_executions (process_id) WHERE completed_at IS NULL AND process_id IS NOT NULL;

-- The queue: one row per execution that may be claimed from `due_at` on.
CREATE TABLE ductwork_availabilities (
    execution_id uuid PRIMARY KEY,
    pipeline     text NOT NULL,
    due_at       bigint NOT NULL
);
CREATE INDEX ductwork_availabilities_due
    ON ductwork_availabilities (pipeline, due_at, execution_id);

CREATE TABLE ductwork_transitions (
    id           uuid PRIMARY KEY,
    run_id       uuid NOT NULL,
    branch_id    uuid NOT NULL,
    -- A step is left once (I10, I11).
    from_step_id uuid NOT NULL UNIQUE,
    via          text,
    -- The number of steps that it produced; a barrier's last arrival produces the step after it.
    produced     bigint,
    retry_count  bigint NOT NULL DEFAULT 0,
    crash_count  bigint NOT NULL DEFAULT 0,
    opened_at    bigint NOT NULL,
    completed_at bigint,
    CONSTRAINT ductwork_transitions_completed CHECK (
        (completed_at IS NOT NULL) = (via IS NOT NULL)
        AND (completed_at IS NOT NULL) = (produced IS NOT NULL))
);
CREATE UNIQUE INDEX ductwork_transitions_open -- I10
    ON ductwork_transitions (branch_id) WHERE completed_at IS NULL;

CREATE TABLE ductwork_advancements (
    id            uuid NOT NULL,
    transition_id uuid NOT NULL,
    branch_id     uuid NOT NULL,
    process_id    uuid NOT NULL,
    claim_token   uuid NOT NULL,
    crash_count   bigint NOT NULL DEFAULT 0,
    claimed_at    bigint NOT NULL,
    lease_until   bigint NOT NULL,
    completed_at  bigint,
    result        ductwork_advancement_result,
    error_class   text,
    error_message text,
    -- Looked up by their transitions; an index for the ids alone would be one more to write.
    PRIMARY KEY (transition_id, id),
    CONSTRAINT ductwork_advancements_result CHECK ((completed_at IS NULL) = (result IS NULL))
);
CREATE UNIQUE INDEX ductwork_advancements_open -- I9
    ON ductwork_advancements (branch_id) WHERE completed_at IS NULL;
CREATE INDEX ductwork_advancements_claimed
    ON ductwork_advancements (process_id) WHERE completed_at IS NULL;

CREATE TABLE ductwork_processes (
    id                uuid PRIMARY KEY,
    supervisor_id     uuid,
    role              ductwork_process_role NOT NULL,
    pipeline          text,
    host              text NOT NULL,
    boot_id           text NOT NULL,
    pid_namespace     text NOT NULL,
    pid               bigint NOT NULL,
    -- The kernel's start time of the process: distinguishes it from a later one with the same pid.
    pid_started_at    bigint NOT NULL,
    version           text NOT NULL,
    started_at        bigint NOT NULL,
    last_heartbeat_at bigint NOT NULL,
    beat_seq          bigint NOT NULL DEFAULT 0,
    -- Counters since its start.
    claimed           bigint NOT NULL DEFAULT 0,
    succeeded         bigint NOT NULL DEFAULT 0,
    errored           bigint NOT NULL DEFAULT 0,
    crashed           bigint NOT NULL DEFAULT 0,
    advanced          bigint NOT NULL DEFAULT 0,
    stale             bigint NOT NULL DEFAULT 0,
    statements        bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE ductwork_tuples (
    run_id       uuid NOT NULL,
    key          text NOT NULL,
    value        text NOT NULL,
    first_set_at bigint NOT NULL,
    last_set_at  bigint NOT NULL,
    PRIMARY KEY (run_id, key)
);

-- For people who query the database: the documented words, and readable times.
CREATE VIEW ductwork_jobs AS
SELECT s.id, s.run_id, s.branch_id, s.node, s.step, s.via, s.status, s.input, s.output,
       to_timestamp(s.created_at / 1e6) AS created_at,
       (SELECT to_timestamp(min(e.claimed_at) / 1e6) FROM ductwork_executions e
         WHERE e.step_id = s.id) AS started_at,
       to_timestamp(s.completed_at / 1e6) AS completed_at
  FROM ductwork_steps s;

CREATE VIEW ductwork_results AS
SELECT e.id AS execution_id, e.step_id, e.attempt, e.result,
       e.error_class, e.error_message, e.error_backtrace,
       to_timestamp(e.claimed_at / 1e6) AS claimed_at,
       to_timestamp(e.completed_at / 1e6) AS completed_at
  FROM ductwork_executions e
 WHERE e.completed_at IS NOT NULL;
