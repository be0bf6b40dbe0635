-- The findings of audits and drills: the newest of each kind.
CREATE TABLE ductwork_reports (
    id      binary(16) NOT NULL PRIMARY KEY,
    -- audit or drill.
    kind    varchar(64) NOT NULL,
    at      bigint NOT NULL,
    -- 1: nothing was wrong.
    ok      bigint NOT NULL,
    -- JSON, in the kind's own form.
    figures longtext NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE INDEX ductwork_reports_kind ON ductwork_reports (kind, id);
