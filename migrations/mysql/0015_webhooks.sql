-- The endpoints that hear of runs, by their names in the configuration.
CREATE TABLE ductwork_webhooks (
    name  varchar(255) NOT NULL PRIMARY KEY,
    -- It hears of runs that ended at this time or later.
    since bigint NOT NULL,
    -- The runs that had ended by this time have been found.
    seen  bigint NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
-- The messages to endpoints: one row for each endpoint, run and event.
CREATE TABLE ductwork_deliveries (
    id         binary(16) NOT NULL PRIMARY KEY,
    endpoint   varchar(128) NOT NULL,
    run_id     binary(16) NOT NULL,
    -- The run's status that the message is about.
    event      varchar(64) NOT NULL,
    pipeline   varchar(128) NOT NULL,
    -- The message, the same at every attempt.
    body       longtext NOT NULL,
    -- waiting, delivered or failed.
    state      varchar(64) NOT NULL,
    attempts   bigint NOT NULL,
    created_at bigint NOT NULL,
    -- The time at which it may be sent; null if it is not waiting.
    due_at     bigint,
    -- The end of the last attempt, and its result: the status of the response, or the reason why there was none.
    tried_at   bigint,
    status     bigint,
    error      longtext,
    UNIQUE (run_id, endpoint, event)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE INDEX ductwork_deliveries_due ON ductwork_deliveries (endpoint, due_at, id);
CREATE INDEX ductwork_deliveries_state ON ductwork_deliveries (state, id);
