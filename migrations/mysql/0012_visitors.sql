-- The interventions of people and their programs: each is recorded by the transaction that carried it out.
CREATE TABLE ductwork_actions (
    id         binary(16) NOT NULL PRIMARY KEY,
    at         bigint NOT NULL,
    by_whom    longtext NOT NULL,
    -- The command line, the API, or a page of the console.
    channel    varchar(64) NOT NULL,
    verb       varchar(64) NOT NULL,
    pipeline   varchar(128) NOT NULL,
    run_id     binary(16),
    -- The run that a revival made.
    made_run   binary(16)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE INDEX ductwork_actions_run ON ductwork_actions (run_id, id);
-- Tokens of the console's visitors, links that let a browser in once, and the sessions of browsers. A secret is stored
-- as its SHA-256.
CREATE TABLE ductwork_tokens (
    id         varchar(255) NOT NULL PRIMARY KEY,
    kind       varchar(64) NOT NULL,
    name       varchar(255) NOT NULL,
    digest     varchar(128) NOT NULL,
    scope      varchar(64) NOT NULL,
    -- The only pipelines that it is for, as a JSON list.
    pipelines  longtext,
    created_at bigint NOT NULL,
    created_by longtext NOT NULL,
    expires_at bigint,
    -- Revoked, used up, or signed out.
    ended_at   bigint,
    -- The token with which a browser signed in: the session ends with it.
    parent     varchar(128)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE INDEX ductwork_tokens_expiry ON ductwork_tokens (kind, expires_at);
