-- The counts of each process since it registered, and in the row of the nil id the counts of processes that are gone.
-- A row is rewritten every few seconds.
CREATE TABLE ductwork_metrics (
    process_id binary(16) NOT NULL PRIMARY KEY,
    written_at bigint NOT NULL,
    body       longtext NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={bin};
