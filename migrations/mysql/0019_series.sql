-- The counts of each pipeline in a minute or an hour; the empty name stands for all pipelines together. There is no
-- row where nothing was counted.
CREATE TABLE ductwork_series (
    pipeline  varchar(128) NOT NULL,
    -- minute or hour.
    grain     varchar(8) NOT NULL,
    -- The time at which it begins.
    at        bigint NOT NULL,
    -- The time from which it counts: before its beginning if no console had looked in time, and after it if looking
    -- began within it.
    since     bigint NOT NULL,
    started   bigint NOT NULL,
    completed bigint NOT NULL,
    halted    bigint NOT NULL,
    retries   bigint NOT NULL,
    -- How long steps waited and runs lasted: sparse histograms as JSON; null if there are none.
    waited    longtext,
    lasted    longtext,
    PRIMARY KEY (pipeline, grain, at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE INDEX ductwork_series_age ON ductwork_series (grain, at);
-- The sums of the last look; the next point is the difference from them. One row.
CREATE TABLE ductwork_series_looks (
    id   bigint NOT NULL PRIMARY KEY,
    -- The number of looks that have written points.
    turn bigint NOT NULL,
    body longtext NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
