-- Duties: work that only one console does at a time.
CREATE TABLE ductwork_duties (
    name   varchar(255) NOT NULL PRIMARY KEY,
    holder binary(16) NOT NULL,
    until  bigint NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
-- Interventions in many runs at once, worked run by run.
CREATE TABLE ductwork_bulks (
    id         binary(16) NOT NULL PRIMARY KEY,
    verb       varchar(64) NOT NULL,
    -- The runs that it is for, as JSON: chosen ones, or a filter.
    selection  longtext NOT NULL,
    -- The definition with which revived runs continue; null: each with its own.
    definition varchar(128),
    -- The greatest id that may be among them.
    newest     binary(16) NOT NULL,
    -- All runs up to this one have been dealt with.
    dealt      binary(16) NOT NULL,
    done       bigint NOT NULL,
    skipped    bigint NOT NULL,
    failed     bigint NOT NULL,
    -- Some of the failures, with their reasons, as JSON.
    failures   longtext NOT NULL,
    created_at bigint NOT NULL,
    by_whom    longtext NOT NULL,
    channel    varchar(64) NOT NULL,
    ended_at   bigint,
    -- The person or the program that stopped it before its end.
    stopped_by longtext
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE INDEX ductwork_bulks_open ON ductwork_bulks (ended_at, id);
ALTER TABLE ductwork_actions ADD COLUMN bulk_id binary(16);
CREATE INDEX ductwork_actions_bulk ON ductwork_actions (bulk_id, id);
