-- Duties: work that only one console does at a time.
CREATE TABLE ductwork_duties (
    name   text PRIMARY KEY,
    holder uuid NOT NULL,
    until  bigint NOT NULL
);
-- Interventions in many runs at once, worked run by run.
CREATE TABLE ductwork_bulks (
    id         uuid PRIMARY KEY,
    verb       text NOT NULL,
    -- The runs that it is for, as JSON: chosen ones, or a filter.
    selection  text NOT NULL,
    -- The definition with which revived runs continue; null: each with its own.
    definition text,
    -- The greatest id that may be among them.
    newest     uuid NOT NULL,
    -- All runs up to this one have been dealt with.
    dealt      uuid NOT NULL,
    done       bigint NOT NULL,
    skipped    bigint NOT NULL,
    failed     bigint NOT NULL,
    -- Some of the failures, with their reasons, as JSON.
    failures   text NOT NULL,
    created_at bigint NOT NULL,
    by_whom    text NOT NULL,
    channel    text NOT NULL,
    ended_at   bigint,
    -- The person or the program that stopped it before its end.
    stopped_by text
);
CREATE INDEX ductwork_bulks_open ON ductwork_bulks (id) WHERE ended_at IS NULL;
ALTER TABLE ductwork_actions ADD COLUMN bulk_id uuid;
CREATE INDEX ductwork_actions_bulk ON ductwork_actions (bulk_id, id) WHERE bulk_id IS NOT NULL;
