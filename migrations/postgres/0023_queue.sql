-- A plan that was made while the queue was empty, and is kept, took one index of the queue for as good as the other.
-- Statements that are given keys of executions then read all of this one for each key. Its condition, which every row
-- meets, keeps it for the statements that name a pipeline.

DROP INDEX ductwork_availabilities_due;
CREATE INDEX ductwork_availabilities_due
    ON ductwork_availabilities (pipeline, due_at, execution_id) WHERE pipeline IS NOT NULL;
