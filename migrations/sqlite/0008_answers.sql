-- Questions that wait for a person, and the time at which each is decided without one: `approve`, or `halt`.
CREATE TABLE ductwork_deadlines (
    branch_id  blob PRIMARY KEY,
    answer_by  integer NOT NULL,
    unanswered text NOT NULL
) STRICT;
CREATE INDEX ductwork_deadlines_due ON ductwork_deadlines (answer_by, branch_id);
-- The person who answered at a step, according to the person's program.
ALTER TABLE ductwork_steps ADD COLUMN answered_by text;
