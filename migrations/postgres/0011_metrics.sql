-- The counts of each process since it registered, and in the row of the nil id the counts of processes that are gone.
-- A row is rewritten every few seconds: some room in its page keeps it there.
CREATE TABLE ductwork_metrics (
    process_id uuid PRIMARY KEY,
    written_at bigint NOT NULL,
    body       text NOT NULL
) WITH (fillfactor = 50);
