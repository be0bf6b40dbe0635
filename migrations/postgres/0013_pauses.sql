-- Pipelines of which nothing is claimed. While a worker registers, it holds the row of its pipeline, here or not.
CREATE TABLE ductwork_pauses (
    pipeline  text PRIMARY KEY,
    reason    text NOT NULL,
    paused_by text NOT NULL,
    paused_at bigint NOT NULL
);
-- 1: its pipeline is paused. Null: it is of a program that knows no pauses, and goes on claiming.
ALTER TABLE ductwork_processes ADD COLUMN paused bigint;
