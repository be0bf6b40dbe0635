-- The findings of audits and drills: the newest of each kind.
CREATE TABLE ductwork_reports (
    id      blob PRIMARY KEY,
    -- audit or drill.
    kind    text NOT NULL,
    at      integer NOT NULL,
    -- 1: nothing was wrong.
    ok      integer NOT NULL,
    -- JSON, in the kind's own form.
    figures text NOT NULL
) STRICT;
CREATE INDEX ductwork_reports_kind ON ductwork_reports (kind, id);
