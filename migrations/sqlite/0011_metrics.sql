-- The counts of each process since it registered, and in the row of the nil id the counts of processes that are gone.
CREATE TABLE ductwork_metrics (
    process_id blob PRIMARY KEY,
    written_at integer NOT NULL,
    body       text NOT NULL
) STRICT;
