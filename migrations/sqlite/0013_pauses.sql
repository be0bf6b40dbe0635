-- Pipelines of which nothing is claimed. While a worker registers, it holds the row of its pipeline, whether that row
-- exists or not.
CREATE TABLE ductwork_pauses (
    pipeline  text PRIMARY KEY,
    reason    text NOT NULL,
    paused_by text NOT NULL,
    paused_at integer NOT NULL
) STRICT;
-- 1: its pipeline is paused. Null: its program does not know pauses, and goes on claiming.
ALTER TABLE ductwork_processes ADD COLUMN paused integer;
