-- The counts of each pipeline in a minute or an hour; the empty name stands for all pipelines together. There is no
-- row where nothing was counted.
CREATE TABLE ductwork_series (
    pipeline  text NOT NULL,
    -- minute or hour.
    grain     text NOT NULL,
    -- The time at which it begins.
    at        integer NOT NULL,
    -- The time from which it counts: before its beginning if no console had looked in time, and after it if looking
    -- began within it.
    since     integer NOT NULL,
    started   integer NOT NULL,
    completed integer NOT NULL,
    halted    integer NOT NULL,
    retries   integer NOT NULL,
    -- How long steps waited and runs lasted: sparse histograms as JSON; null if there are none.
    waited    text,
    lasted    text,
    PRIMARY KEY (pipeline, grain, at)
) STRICT;
CREATE INDEX ductwork_series_age ON ductwork_series (grain, at);
-- The sums of the last look; the next point is the difference from them. One row.
CREATE TABLE ductwork_series_looks (
    id   integer PRIMARY KEY,
    -- The number of looks that have written points.
    turn integer NOT NULL,
    body text NOT NULL
) STRICT;
