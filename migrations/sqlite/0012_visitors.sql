-- The interventions of people and their programs: each is recorded by the transaction that carried it out.
CREATE TABLE ductwork_actions (
    id         blob PRIMARY KEY,
    at         integer NOT NULL,
    by_whom    text NOT NULL,
    -- The command line, the API, or a page of the console.
    channel    text NOT NULL,
    verb       text NOT NULL,
    pipeline   text NOT NULL,
    run_id     blob,
    -- The run that a revival made.
    made_run   blob
) STRICT;
CREATE INDEX ductwork_actions_run ON ductwork_actions (run_id, id) WHERE run_id IS NOT NULL;
-- Tokens of the console's visitors, links that let a browser in once, and the sessions of browsers. A secret is stored
-- as its SHA-256.
CREATE TABLE ductwork_tokens (
    id         text PRIMARY KEY,
    kind       text NOT NULL,
    name       text NOT NULL,
    digest     text NOT NULL,
    scope      text NOT NULL,
    -- The only pipelines that it is for, as a JSON list.
    pipelines  text,
    created_at integer NOT NULL,
    created_by text NOT NULL,
    expires_at integer,
    -- Revoked, used up, or signed out.
    ended_at   integer,
    -- The token with which a browser signed in: the session ends with it.
    parent     text
) STRICT;
CREATE INDEX ductwork_tokens_expiry ON ductwork_tokens (kind, expires_at);
