-- The endpoints that hear of runs, by their names in the configuration.
CREATE TABLE ductwork_webhooks (
    name  text PRIMARY KEY,
    -- It hears of runs that ended at this time or later.
    since integer NOT NULL,
    -- The runs that had ended by this time have been found.
    seen  integer NOT NULL
) STRICT;
-- The messages to endpoints: one row for each endpoint, run and event.
CREATE TABLE ductwork_deliveries (
    id         blob PRIMARY KEY,
    endpoint   text NOT NULL,
    run_id     blob NOT NULL,
    -- The run's status that the message is about.
    event      text NOT NULL,
    pipeline   text NOT NULL,
    -- The message, the same at every attempt.
    body       text NOT NULL,
    -- waiting, delivered or failed.
    state      text NOT NULL,
    attempts   integer NOT NULL,
    created_at integer NOT NULL,
    -- The time at which it may be sent; null if it is not waiting.
    due_at     integer,
    -- The end of the last attempt, and its result: the status of the response, or the reason why there was none.
    tried_at   integer,
    status     integer,
    error      text,
    UNIQUE (run_id, endpoint, event)
) STRICT;
CREATE INDEX ductwork_deliveries_due ON ductwork_deliveries (endpoint, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX ductwork_deliveries_state ON ductwork_deliveries (state, id);
