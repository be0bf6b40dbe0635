-- Times are microseconds since 1970, UTC, from the database's clock. Payloads are JSON as text:
-- \u0000 survives, and nothing is parsed twice. Numbers In name the invariants that a constraint
-- enforces (ARCHITECTURE.md).

CREATE TABLE ductwork_definitions (
    digest     text PRIMARY KEY,
    pipeline   text NOT NULL,
    body       text NOT NULL,
    created_at integer NOT NULL
) STRICT;

CREATE TABLE ductwork_runs (
    id           blob PRIMARY KEY,
    pipeline     text NOT NULL,
    definition   text NOT NULL,
    status       text NOT NULL DEFAULT 'in_progress'
        CHECK (status IN ('in_progress', 'dampened', 'completed', 'halted', 'cancelled')),
    input        text NOT NULL,
    output       text,
    trigger_key  text,
    -- A run is revived at most once, so a lineage is a line with one active end (I21).
    revived_from blob UNIQUE,
    -- Branches that wait for a person; the run is dampened while there is one.
    dampened     integer NOT NULL DEFAULT 0 CHECK (dampened >= 0),
    triggered_at integer NOT NULL,
    completed_at integer,
    halted_at    integer,
    cancelled_at integer,
    CONSTRAINT ductwork_runs_times CHECK ( -- I16
        (completed_at IS NOT NULL) = (status = 'completed')
        AND (halted_at IS NOT NULL) = (status = 'halted')
        AND (cancelled_at IS NOT NULL) = (status = 'cancelled')
        AND (output IS NOT NULL) = (status = 'completed'))
) STRICT;
CREATE UNIQUE INDEX ductwork_runs_trigger_key -- I28
    ON ductwork_runs (pipeline, trigger_key) WHERE trigger_key IS NOT NULL;
CREATE INDEX ductwork_runs_status ON ductwork_runs (status, id);
-- The index that retention searches.
CREATE INDEX ductwork_runs_ended ON ductwork_runs (coalesce(completed_at, halted_at, cancelled_at))
    WHERE status IN ('completed', 'halted', 'cancelled');

CREATE TABLE ductwork_branches (
    id                       blob PRIMARY KEY,
    run_id                   blob NOT NULL,
    pipeline                 text NOT NULL,
    -- The barrier at which it arrives, and its place in the fan-out; none for a run's root.
    fan_out_id               blob,
    ordinal                  integer NOT NULL DEFAULT 0,
    status                   text NOT NULL CHECK (status IN
        ('in_progress', 'advancing', 'waiting', 'dampened', 'completed', 'halted', 'cancelled')),
    halt_reason              text,
    -- Its current step: the one with the highest ordinal.
    step_id                  blob NOT NULL,
    -- The value that it ended with, if that is not its last step's output.
    output                   text,
    -- The time since which it waits to be advanced; null if it does not.
    ready_at                 integer,
    claim_token              blob,
    claimed_for_advancing_at integer,
    last_advanced_at         integer,
    CONSTRAINT ductwork_branches_claim CHECK ( -- I9
        (claim_token IS NOT NULL) = (status = 'advancing')
        AND (claim_token IS NOT NULL) = (claimed_for_advancing_at IS NOT NULL)),
    CONSTRAINT ductwork_branches_ready CHECK (ready_at IS NULL OR status = 'in_progress'),
    CONSTRAINT ductwork_branches_halt CHECK (halt_reason IS NULL OR status = 'halted')
) STRICT;
CREATE UNIQUE INDEX ductwork_branches_fan_out
    ON ductwork_branches (fan_out_id, ordinal) WHERE fan_out_id IS NOT NULL; -- I30
CREATE INDEX ductwork_branches_run ON ductwork_branches (run_id);
CREATE INDEX ductwork_branches_ready
    ON ductwork_branches (ready_at, id) WHERE ready_at IS NOT NULL;

CREATE TABLE ductwork_fan_outs (
    id                blob PRIMARY KEY,
    run_id            blob NOT NULL,
    -- The branch that was split, and waits.
    branch_id         blob NOT NULL,
    node              text NOT NULL,
    via               text NOT NULL CHECK (via IN ('divide', 'expand')),
    width             integer NOT NULL CHECK (width > 0),
    arrived           integer NOT NULL DEFAULT 0,
    halted            integer NOT NULL DEFAULT 0,
    -- The splitting branch's own place in a fan-out.
    parent_fan_out_id blob,
    parent_ordinal    integer NOT NULL DEFAULT 0,
    created_at        integer NOT NULL,
    fired_at          integer,
    CONSTRAINT ductwork_fan_outs_arithmetic CHECK ( -- I13
        arrived BETWEEN 0 AND width AND halted BETWEEN 0 AND arrived
        AND (fired_at IS NOT NULL) = (arrived = width))
) STRICT;
CREATE INDEX ductwork_fan_outs_branch ON ductwork_fan_outs (branch_id);

CREATE TABLE ductwork_steps (
    id             blob PRIMARY KEY,
    run_id         blob NOT NULL,
    branch_id      blob NOT NULL,
    -- Its place on its branch.
    ordinal        integer NOT NULL,
    node           text NOT NULL,
    step           text NOT NULL,
    via            text NOT NULL,
    -- The transition that produced it; none for a start, a hook, a copy.
    transition_id  blob,
    -- The step that it copies (revive).
    source_step_id blob,
    status         text NOT NULL CHECK (status IN
        ('in_progress', 'advancing', 'waiting', 'completed', 'failed', 'cancelled')),
    input          text NOT NULL,
    output         text,
    created_at     integer NOT NULL,
    completed_at   integer,
    CONSTRAINT ductwork_steps_output CHECK ( -- I4, I14
        status = 'cancelled' OR (output IS NOT NULL) = (status IN ('advancing', 'completed')))
) STRICT;
-- I12, I19: a branch has one step at each place, so it cannot be advanced twice.
CREATE UNIQUE INDEX ductwork_steps_branch ON ductwork_steps (branch_id, ordinal);

CREATE TABLE ductwork_executions (
    id              blob PRIMARY KEY,
    step_id         blob NOT NULL,
    pipeline        text NOT NULL,
    attempt         integer NOT NULL CHECK (attempt > 0),
    -- Errors and crashes of earlier attempts.
    retry_count     integer NOT NULL DEFAULT 0,
    crash_count     integer NOT NULL DEFAULT 0,
    process_id      blob,
    claimed_at      integer,
    lease_until     integer,
    completed_at    integer,
    result          text CHECK (result IN
        ('success', 'error', 'process_crashed', 'timed_out', 'cancelled', 'released')),
    error_class     text,
    error_message   text,
    error_backtrace text,
    CONSTRAINT ductwork_executions_claim CHECK ( -- I2
        (process_id IS NULL) = (claimed_at IS NULL)
        AND (process_id IS NULL) = (lease_until IS NULL)),
    CONSTRAINT ductwork_executions_result CHECK ((completed_at IS NULL) = (result IS NULL)) -- I3
) STRICT;
CREATE UNIQUE INDEX ductwork_executions_attempt ON ductwork_executions (step_id, attempt);
CREATE UNIQUE INDEX ductwork_executions_open -- I1
    ON ductwork_executions (step_id) WHERE completed_at IS NULL;
CREATE UNIQUE INDEX ductwork_executions_success -- I4
    ON ductwork_executions (step_id) WHERE result = 'success';
CREATE INDEX ductwork_executions_claimed
    ON ductwork_executions (process_id) WHERE completed_at IS NULL AND process_id IS NOT NULL;

-- The queue: one row per execution that may be claimed from `due_at` on.
CREATE TABLE ductwork_availabilities (
    execution_id blob PRIMARY KEY,
    pipeline     text NOT NULL,
    due_at       integer NOT NULL
) STRICT;
CREATE INDEX ductwork_availabilities_due
    ON ductwork_availabilities (pipeline, due_at, execution_id);

CREATE TABLE ductwork_transitions (
    id           blob PRIMARY KEY,
    run_id       blob NOT NULL,
    branch_id    blob NOT NULL,
    -- A step is left once (I10, I11).
    from_step_id blob NOT NULL UNIQUE,
    via          text,
    -- The number of steps that it produced; a barrier's last arrival produces the step after it.
    produced     integer,
    retry_count  integer NOT NULL DEFAULT 0,
    crash_count  integer NOT NULL DEFAULT 0,
    opened_at    integer NOT NULL,
    completed_at integer,
    CONSTRAINT ductwork_transitions_completed CHECK (
        (completed_at IS NOT NULL) = (via IS NOT NULL)
        AND (completed_at IS NOT NULL) = (produced IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX ductwork_transitions_open -- I10
    ON ductwork_transitions (branch_id) WHERE completed_at IS NULL;

CREATE TABLE ductwork_advancements (
    id            blob NOT NULL,
    transition_id blob NOT NULL,
    branch_id     blob NOT NULL,
    process_id    blob NOT NULL,
    claim_token   blob NOT NULL,
    crash_count   integer NOT NULL DEFAULT 0,
    claimed_at    integer NOT NULL,
    lease_until   integer NOT NULL,
    completed_at  integer,
    result        text CHECK (result IN
        ('success', 'error', 'process_crashed', 'cancelled', 'released')),
    error_class   text,
    error_message text,
    -- Looked up by their transitions; an index for the ids alone would be one more to write.
    PRIMARY KEY (transition_id, id),
    CONSTRAINT ductwork_advancements_result CHECK ((completed_at IS NULL) = (result IS NULL))
) STRICT;
CREATE UNIQUE INDEX ductwork_advancements_open -- I9
    ON ductwork_advancements (branch_id) WHERE completed_at IS NULL;
CREATE INDEX ductwork_advancements_claimed
    ON ductwork_advancements (process_id) WHERE completed_at IS NULL;

CREATE TABLE ductwork_processes (
    id                blob PRIMARY KEY,
    supervisor_id     blob,
    role              text NOT NULL CHECK (role IN ('supervisor', 'advancer', 'worker')),
    pipeline          text,
    host              text NOT NULL,
    boot_id           text NOT NULL,
    pid_namespace     text NOT NULL,
    pid               integer NOT NULL,
    -- The kernel's start time of the process: distinguishes it from a later one with the same pid.
    pid_started_at    integer NOT NULL,
    version           text NOT NULL,
    started_at        integer NOT NULL,
    last_heartbeat_at integer NOT NULL,
    beat_seq          integer NOT NULL DEFAULT 0,
    -- Counters since its start.
    claimed           integer NOT NULL DEFAULT 0,
    succeeded         integer NOT NULL DEFAULT 0,
    errored           integer NOT NULL DEFAULT 0,
    crashed           integer NOT NULL DEFAULT 0,
    advanced          integer NOT NULL DEFAULT 0,
    stale             integer NOT NULL DEFAULT 0,
    statements        integer NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE ductwork_tuples (
    run_id       blob NOT NULL,
    key          text NOT NULL,
    value        text NOT NULL,
    first_set_at integer NOT NULL,
    last_set_at  integer NOT NULL,
    PRIMARY KEY (run_id, key)
) STRICT;

-- For people who query the database: the documented words, and readable times.
CREATE VIEW ductwork_jobs AS
SELECT s.id, s.run_id, s.branch_id, s.node, s.step, s.via, s.status, s.input, s.output,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.created_at / 1e6, 'unixepoch') AS created_at,
       (SELECT strftime('%Y-%m-%dT%H:%M:%fZ', min(e.claimed_at) / 1e6, 'unixepoch') FROM ductwork_executions e
         WHERE e.step_id = s.id) AS started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.completed_at / 1e6, 'unixepoch') AS completed_at
  FROM ductwork_steps s;

CREATE VIEW ductwork_results AS
SELECT e.id AS execution_id, e.step_id, e.attempt, e.result,
       e.error_class, e.error_message, e.error_backtrace,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.claimed_at / 1e6, 'unixepoch') AS claimed_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.completed_at / 1e6, 'unixepoch') AS completed_at
  FROM ductwork_executions e
 WHERE e.completed_at IS NOT NULL;
