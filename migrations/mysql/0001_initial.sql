-- Times are microseconds since 1970, UTC, from the database's clock. Payloads are JSON as text, which no server
-- rewrites. Numbers In name the invariants that a constraint enforces (ARCHITECTURE.md). `{bin}` is the server's
-- collation under which texts are equal if their bytes are.
--
-- A statement that changes the schema commits by itself. So each of these may be run a second time: the server then
-- reports that the object exists. An index that a later migration would drop is not created at all: a process that
-- starts more slowly would create it again after that.
--
-- There are no partial indexes here. A column that has a value only while a row is open stands in for the condition;
-- it is stored, because an index on a virtual column costs the server more to maintain.

CREATE TABLE ductwork_definitions (
    digest     varchar(128) NOT NULL PRIMARY KEY,
    pipeline   varchar(128) NOT NULL,
    body       longtext NOT NULL,
    created_at bigint NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};

CREATE TABLE ductwork_runs (
    id           binary(16) NOT NULL PRIMARY KEY,
    pipeline     varchar(128) NOT NULL,
    definition   varchar(128) NOT NULL,
    status       varchar(16) NOT NULL DEFAULT 'in_progress',
    input        longtext NOT NULL,
    output       longtext,
    trigger_key  varchar(512),
    -- The pipeline of a run with a key: without a key, every column of its index entry is null (docs/adr/0049).
    keyed        varchar(128) GENERATED ALWAYS AS (CASE WHEN trigger_key IS NOT NULL THEN pipeline END) STORED,
    -- A run is revived at most once, so a lineage is a line with one active end (I21).
    revived_from binary(16),
    -- Branches that wait for a person; the run is dampened while there is one.
    dampened     bigint NOT NULL DEFAULT 0,
    triggered_at bigint NOT NULL,
    completed_at bigint,
    halted_at    bigint,
    cancelled_at bigint,
    ended_at     bigint GENERATED ALWAYS AS (coalesce(completed_at, halted_at, cancelled_at)) STORED,
    CONSTRAINT ductwork_runs_status CHECK (status IN
        ('in_progress', 'dampened', 'completed', 'halted', 'cancelled')),
    CONSTRAINT ductwork_runs_dampened CHECK (dampened >= 0),
    CONSTRAINT ductwork_runs_times CHECK ( -- I16
        (completed_at IS NOT NULL) = (status = 'completed')
        AND (halted_at IS NOT NULL) = (status = 'halted')
        AND (cancelled_at IS NOT NULL) = (status = 'cancelled')
        AND (output IS NOT NULL) = (status = 'completed'))
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE UNIQUE INDEX ductwork_runs_trigger_key ON ductwork_runs (trigger_key, keyed); -- I28
CREATE UNIQUE INDEX ductwork_runs_revived_from ON ductwork_runs (revived_from); -- I21
-- The index that retention searches.
CREATE INDEX ductwork_runs_ended ON ductwork_runs (ended_at, id);

CREATE TABLE ductwork_branches (
    id                       binary(16) NOT NULL PRIMARY KEY,
    run_id                   binary(16) NOT NULL,
    pipeline                 varchar(128) NOT NULL,
    -- The barrier at which it arrives, and its place in the fan-out; none for a run's root.
    fan_out_id               binary(16),
    ordinal                  bigint NOT NULL DEFAULT 0,
    -- Its place in a fan-out: for a root, every column of its index entry is null (docs/adr/0049).
    place                    bigint GENERATED ALWAYS AS (CASE WHEN fan_out_id IS NOT NULL THEN ordinal END) STORED,
    status                   varchar(16) NOT NULL,
    halt_reason              varchar(128),
    -- Its current step: the one with the highest ordinal.
    step_id                  binary(16) NOT NULL,
    -- The value that it ended with, if that is not its last step's output.
    output                   longtext,
    -- The time since which it waits to be advanced; null if it does not.
    ready_at                 bigint,
    claim_token              binary(16),
    claimed_for_advancing_at bigint,
    last_advanced_at         bigint,
    CONSTRAINT ductwork_branches_status CHECK (status IN
        ('in_progress', 'advancing', 'waiting', 'dampened', 'completed', 'halted', 'cancelled')),
    CONSTRAINT ductwork_branches_claim CHECK ( -- I9
        (claim_token IS NOT NULL) = (status = 'advancing')
        AND (claim_token IS NOT NULL) = (claimed_for_advancing_at IS NOT NULL)),
    CONSTRAINT ductwork_branches_ready_check CHECK (ready_at IS NULL OR status = 'in_progress'),
    CONSTRAINT ductwork_branches_halt CHECK (halt_reason IS NULL OR status = 'halted')
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE UNIQUE INDEX ductwork_branches_fan_out ON ductwork_branches (fan_out_id, place); -- I30
CREATE INDEX ductwork_branches_places ON ductwork_branches (fan_out_id, ordinal);
CREATE INDEX ductwork_branches_ready ON ductwork_branches (ready_at, id);

CREATE TABLE ductwork_fan_outs (
    id                binary(16) NOT NULL PRIMARY KEY,
    run_id            binary(16) NOT NULL,
    -- The branch that was split, and waits.
    branch_id         binary(16) NOT NULL,
    node              varchar(255) NOT NULL,
    via               varchar(16) NOT NULL,
    width             bigint NOT NULL,
    arrived           bigint NOT NULL DEFAULT 0,
    halted            bigint NOT NULL DEFAULT 0,
    -- The splitting branch's own place in a fan-out.
    parent_fan_out_id binary(16),
    parent_ordinal    bigint NOT NULL DEFAULT 0,
    created_at        bigint NOT NULL,
    fired_at          bigint,
    CONSTRAINT ductwork_fan_outs_via CHECK (via IN ('divide', 'expand')),
    CONSTRAINT ductwork_fan_outs_width CHECK (width > 0),
    CONSTRAINT ductwork_fan_outs_arithmetic CHECK ( -- I13
        arrived BETWEEN 0 AND width AND halted BETWEEN 0 AND arrived
        AND (fired_at IS NOT NULL) = (arrived = width))
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE INDEX ductwork_fan_outs_branch ON ductwork_fan_outs (branch_id);

CREATE TABLE ductwork_steps (
    id             binary(16) NOT NULL PRIMARY KEY,
    run_id         binary(16) NOT NULL,
    branch_id      binary(16) NOT NULL,
    -- Its place on its branch.
    ordinal        bigint NOT NULL,
    node           varchar(255) NOT NULL,
    step           varchar(255) NOT NULL,
    via            varchar(32) NOT NULL,
    -- The transition that produced it; none for a start, a hook, a copy.
    transition_id  binary(16),
    -- The step that it copies (revive).
    source_step_id binary(16),
    status         varchar(16) NOT NULL,
    input          longtext NOT NULL,
    output         longtext,
    created_at     bigint NOT NULL,
    completed_at   bigint,
    CONSTRAINT ductwork_steps_status CHECK (status IN
        ('in_progress', 'advancing', 'waiting', 'completed', 'failed', 'cancelled')),
    CONSTRAINT ductwork_steps_output CHECK ( -- I4, I14
        status = 'cancelled' OR (output IS NOT NULL) = (status IN ('advancing', 'completed')))
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
-- I12, I19: a branch has one step at each place, so it cannot be advanced twice.
CREATE UNIQUE INDEX ductwork_steps_branch ON ductwork_steps (branch_id, ordinal);

CREATE TABLE ductwork_executions (
    id              binary(16) NOT NULL PRIMARY KEY,
    step_id         binary(16) NOT NULL,
    pipeline        varchar(128) NOT NULL,
    attempt         bigint NOT NULL,
    -- Errors and crashes of earlier attempts.
    retry_count     bigint NOT NULL DEFAULT 0,
    crash_count     bigint NOT NULL DEFAULT 0,
    process_id      binary(16),
    claimed_at      bigint,
    lease_until     bigint,
    completed_at    bigint,
    result          varchar(16),
    error_class     longtext,
    error_message   longtext,
    error_backtrace longtext,
    -- The step, which no other execution may execute while this one is open, or once it has succeeded.
    only_step       binary(16) GENERATED ALWAYS AS
                    (CASE WHEN result IS NULL OR result = 'success' THEN step_id END) STORED,
    holder          binary(16) GENERATED ALWAYS AS (CASE WHEN result IS NULL THEN process_id END) STORED,
    CONSTRAINT ductwork_executions_number CHECK (attempt > 0),
    CONSTRAINT ductwork_executions_words CHECK (result IN
        ('success', 'error', 'process_crashed', 'timed_out', 'cancelled', 'released')),
    CONSTRAINT ductwork_executions_claim CHECK ( -- I2
        (process_id IS NULL) = (claimed_at IS NULL)
        AND (process_id IS NULL) = (lease_until IS NULL)),
    CONSTRAINT ductwork_executions_result CHECK ((completed_at IS NULL) = (result IS NULL)) -- I3
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE UNIQUE INDEX ductwork_executions_attempt ON ductwork_executions (step_id, attempt);
-- I1, I4: a success does not touch it.
CREATE UNIQUE INDEX ductwork_executions_only ON ductwork_executions (only_step);
CREATE INDEX ductwork_executions_claimed ON ductwork_executions (holder);

-- The queue: one row per execution that may be claimed from `due_at` on.
CREATE TABLE ductwork_availabilities (
    execution_id binary(16) NOT NULL PRIMARY KEY,
    pipeline     varchar(128) NOT NULL,
    due_at       bigint NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE INDEX ductwork_availabilities_due ON ductwork_availabilities (pipeline, due_at, execution_id);

CREATE TABLE ductwork_transitions (
    id           binary(16) NOT NULL PRIMARY KEY,
    run_id       binary(16) NOT NULL,
    branch_id    binary(16) NOT NULL,
    from_step_id binary(16) NOT NULL,
    via          varchar(32),
    -- The number of steps that it produced; a barrier's last arrival produces the step after it.
    produced     bigint,
    retry_count  bigint NOT NULL DEFAULT 0,
    crash_count  bigint NOT NULL DEFAULT 0,
    opened_at    bigint NOT NULL,
    completed_at bigint,
    open_branch  binary(16) GENERATED ALWAYS AS (CASE WHEN completed_at IS NULL THEN branch_id END) STORED,
    CONSTRAINT ductwork_transitions_completed CHECK (
        (completed_at IS NOT NULL) = (via IS NOT NULL)
        AND (completed_at IS NOT NULL) = (produced IS NOT NULL))
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
-- A step is left once (I10, I11).
CREATE UNIQUE INDEX ductwork_transitions_from ON ductwork_transitions (from_step_id);
CREATE UNIQUE INDEX ductwork_transitions_open ON ductwork_transitions (open_branch); -- I10

CREATE TABLE ductwork_advancements (
    id            binary(16) NOT NULL,
    transition_id binary(16) NOT NULL,
    branch_id     binary(16) NOT NULL,
    process_id    binary(16) NOT NULL,
    claim_token   binary(16) NOT NULL,
    crash_count   bigint NOT NULL DEFAULT 0,
    claimed_at    bigint NOT NULL,
    lease_until   bigint NOT NULL,
    completed_at  bigint,
    result        varchar(16),
    error_class   longtext,
    error_message longtext,
    open_branch   binary(16) GENERATED ALWAYS AS (CASE WHEN completed_at IS NULL THEN branch_id END) STORED,
    holder        binary(16) GENERATED ALWAYS AS (CASE WHEN completed_at IS NULL THEN process_id END) STORED,
    -- Looked up by their transitions; an index for the ids alone would be one more to write.
    PRIMARY KEY (transition_id, id),
    CONSTRAINT ductwork_advancements_words CHECK (result IN
        ('success', 'error', 'process_crashed', 'cancelled', 'released')),
    CONSTRAINT ductwork_advancements_result CHECK ((completed_at IS NULL) = (result IS NULL))
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE UNIQUE INDEX ductwork_advancements_open ON ductwork_advancements (open_branch); -- I9
CREATE INDEX ductwork_advancements_claimed ON ductwork_advancements (holder);

CREATE TABLE ductwork_processes (
    id                binary(16) NOT NULL PRIMARY KEY,
    supervisor_id     binary(16),
    role              varchar(16) NOT NULL,
    pipeline          varchar(128),
    host              varchar(255) NOT NULL,
    boot_id           varchar(255) NOT NULL,
    pid_namespace     varchar(255) NOT NULL,
    pid               bigint NOT NULL,
    -- The kernel's start time of the process: distinguishes it from a later one with the same pid.
    pid_started_at    bigint NOT NULL,
    version           varchar(255) NOT NULL,
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
    statements        bigint NOT NULL DEFAULT 0,
    CONSTRAINT ductwork_processes_role CHECK (role IN ('supervisor', 'advancer', 'worker'))
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};

CREATE TABLE ductwork_tuples (
    run_id       binary(16) NOT NULL,
    "key"        varchar(512) NOT NULL,
    value        longtext NOT NULL,
    first_set_at bigint NOT NULL,
    last_set_at  bigint NOT NULL,
    PRIMARY KEY (run_id, "key")
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};

-- For people who query the database: the documented words, and readable times.
CREATE OR REPLACE VIEW ductwork_jobs AS
SELECT s.id, s.run_id, s.branch_id, s.node, s.step, s.via, s.status, s.input, s.output,
       TIMESTAMPADD(MICROSECOND, s.created_at, TIMESTAMP '1970-01-01 00:00:00') AS created_at,
       (SELECT TIMESTAMPADD(MICROSECOND, min(e.claimed_at), TIMESTAMP '1970-01-01 00:00:00') FROM ductwork_executions e
         WHERE e.step_id = s.id) AS started_at,
       TIMESTAMPADD(MICROSECOND, s.completed_at, TIMESTAMP '1970-01-01 00:00:00') AS completed_at
  FROM ductwork_steps s;

CREATE OR REPLACE VIEW ductwork_results AS
SELECT e.id AS execution_id, e.step_id, e.attempt, e.result,
       e.error_class, e.error_message, e.error_backtrace,
       TIMESTAMPADD(MICROSECOND, e.claimed_at, TIMESTAMP '1970-01-01 00:00:00') AS claimed_at,
       TIMESTAMPADD(MICROSECOND, e.completed_at, TIMESTAMP '1970-01-01 00:00:00') AS completed_at
  FROM ductwork_executions e
 WHERE e.completed_at IS NOT NULL;
