-- What the last audits and drills have found: of each kind the newest ones.
CREATE TABLE ductwork_reports (
    id      binary(16) NOT NULL PRIMARY KEY,
    -- audit or drill.
    kind    varchar(64) NOT NULL,
    at      bigint NOT NULL,
    -- 1: nothing was wrong.
    ok      bigint NOT NULL,
    -- As JSON, of the kind's own form.
    figures longtext NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE INDEX ductwork_reports_kind ON ductwork_reports (kind, id);
