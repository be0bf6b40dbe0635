-- Pipelines of which nothing is claimed. While a worker registers, it holds the row of its pipeline, whether that row
-- exists or not.
CREATE TABLE ductwork_pauses (
    pipeline  varchar(128) NOT NULL PRIMARY KEY,
    reason    longtext NOT NULL,
    paused_by longtext NOT NULL,
    paused_at bigint NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
-- 1: its pipeline is paused. Null: its program does not know pauses, and goes on claiming.
ALTER TABLE ductwork_processes ADD COLUMN paused bigint;
