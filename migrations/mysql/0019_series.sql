-- What each pipeline counted in a minute or an hour; under the empty name all pipelines together. There is no row
-- where nothing was counted.
CREATE TABLE ductwork_series (
    pipeline  varchar(128) NOT NULL,
    -- minute or hour.
    grain     varchar(8) NOT NULL,
    -- When it begins.
    at        bigint NOT NULL,
    -- It counts from then on: before it begins where nobody had looked in time, and later where looking began in it.
    since     bigint NOT NULL,
    started   bigint NOT NULL,
    completed bigint NOT NULL,
    halted    bigint NOT NULL,
    retries   bigint NOT NULL,
    -- For how long steps waited and runs lasted: sparse histograms as JSON; null where there are none.
    waited    longtext,
    lasted    longtext,
    PRIMARY KEY (pipeline, grain, at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
CREATE INDEX ductwork_series_age ON ductwork_series (grain, at);
-- The sums of the last look, of which the next point is the difference. One row.
CREATE TABLE ductwork_series_looks (
    id   bigint NOT NULL PRIMARY KEY,
    -- How many looks have written points.
    turn bigint NOT NULL,
    body longtext NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
